"""What the supervisor saw last, for who shows streams without asking the engine.

A small file for each domain, beside the wishes: a look replaces it, atomically.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tidemark.base import atomic
from tidemark.base.private import make_folder
from tidemark.base.settings import Settings
from tidemark_streaming import wishes
from tidemark_streaming.supervisor import Stream

STALE = 120_000_000
"""Microseconds after which a look says nothing of now."""


def note(settings: Settings, domain: str, streams: Mapping[str, Stream], now: int) -> None:
    """Put down how the streams of a domain are."""
    file = _folder(settings) / f"{domain}.json"
    make_folder(file.parent)
    told = {"at": now, "streams": {asset: asdict(stream) for asset, stream in streams.items()}}
    atomic.write(file, json.dumps(told))


def noted(settings: Settings, now: int, lasts: int = STALE) -> dict[str, Stream]:
    """How streams were when they were looked at last, by asset; nothing of a look that is stale.

    One of a time to come is: the clock was set back, and nobody knows how long ago it was.

    Args:
        now: the time, in microseconds.
        lasts: microseconds after which a look is stale.
    """
    found: dict[str, Stream] = {}
    for file in sorted(_folder(settings).glob("[!.]*.json")):
        told = json.loads(file.read_text())
        if 0 <= now - told["at"] <= lasts:
            found |= {asset: Stream(**stream) for asset, stream in told["streams"].items()}
    return found


def _folder(settings: Settings) -> Path:
    return wishes.folder(settings) / "noted"
