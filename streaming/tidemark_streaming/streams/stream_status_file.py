"""The supervisor's latest status of streams, for programs that show streams without the engine.

Each domain has a small file, next to the requests (`desired_streams`); each poll replaces it
atomically.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tidemark.base.files import atomic
from tidemark.base.files.private import make_folder
from tidemark.base.settings import Settings
from tidemark_streaming.streams import desired_streams
from tidemark_streaming.streams.supervisor import Stream

STALE = 120_000_000
"""The microseconds after which a status is stale."""


def write_statuses(
    settings: Settings, domain: str, streams: Mapping[str, Stream], now: int
) -> None:
    """Store the status of a domain's streams."""
    file = _folder(settings) / f"{domain}.json"
    make_folder(file.parent)
    content = {"at": now, "streams": {asset: asdict(stream) for asset, stream in streams.items()}}
    atomic.write(file, json.dumps(content))


def read_statuses(settings: Settings, now: int, lasts: int = STALE) -> dict[str, Stream]:
    """Return the latest status of streams, by asset, without a stale one.

    A status from the future is stale too: the clock was set back, so its age is unknown.

    Args:
        now: the time, in microseconds.
        lasts: the microseconds after which a status is stale.
    """
    found: dict[str, Stream] = {}
    for file in sorted(_folder(settings).glob("[!.]*.json")):
        content = json.loads(file.read_text())
        if 0 <= now - content["at"] <= lasts:
            found |= {asset: Stream(**stream) for asset, stream in content["streams"].items()}
    return found


def _folder(settings: Settings) -> Path:
    return desired_streams.folder(settings) / "status"
