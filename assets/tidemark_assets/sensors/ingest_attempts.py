"""Decide when the sensor of a blocked source launches an ingest again.

An ingest that was refused would be refused again for each new file. The sensor therefore tries
again only if something has changed since the last attempt:

| change | possible fix |
| --- | --- |
| the source's definition, or its connector | a column's type was corrected, a change was accepted |
| a file that was pending at the last attempt | it was corrected, or moved out of the folder |
| a day has passed | other causes are not visible to a tick: a registry, a key, a permission |
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.base.instants import is_wait_over
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import Chunk, Connector
from tidemark_streaming.files import FileConnector

RETRY_AFTER_MICROS = 86_400_000_000
"""Microseconds after which a blocked source is tried again, even without a change."""

MAX_REMEMBERED_FILES = 1000
"""Maximum number of files that a part remembers: the first files of a longer backlog.

A change of any other file is only detected by the daily attempt.
"""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Attempt:
    """The state of a source when an ingest of the source was attempted.

    Args:
        at: the time, in microseconds.
        definition: a digest of the source and its connector.
        files: the position and the time of each pending file, by the file's name.
    """

    at: int
    definition: str
    files: dict[str, list[Any]]

    def to_memory(self) -> dict[str, Any]:
        """Return the attempt as the memory of a sensor's part."""
        return asdict(self)

    def digest(self) -> str:
        """Return a hash that identifies the attempt."""
        return hashlib.sha256(json.dumps(self.to_memory()).encode()).hexdigest()[:12]

    def still_applies(self, current: "Attempt", timeline: Sequence[Arrival]) -> bool:
        """Return whether nothing has changed since then: the ingest would be refused again."""
        if self.definition != current.definition or is_wait_over(
            RETRY_AFTER_MICROS, self.at, current.at
        ):
            return False
        # Only a connector of files has files.
        positions = (json.loads(arrival.position) for arrival in timeline if self.files)
        taken = {position["file"] for position in positions if "file" in position}
        left = self.files.keys() - taken
        if len(self.files) >= MAX_REMEMBERED_FILES and not left and current.files:
            # All remembered files of a long backlog were ingested, so another file blocks the
            # source.
            return False
        return all(current.files.get(name) == self.files[name] for name in left)


def current_attempt(connector: Connector, pending: Sequence[Chunk], started_at: int) -> Attempt:
    """Return the attempt to record if an ingest is launched now."""
    # The memory address of a user's function is removed: it differs in each process.
    text = _ADDRESS.sub("", repr((connector.source, connector)))
    files = dict(_files(pending)) if isinstance(connector, FileConnector) else {}
    return Attempt(started_at, hashlib.sha256(text.encode()).hexdigest()[:12], files)


def read_attempt(memory: Mapping[str, Any] | None) -> Attempt | None:
    """Return the last attempt from the memory of a sensor's part; None before the first."""
    if memory is None:
        return None
    return Attempt(**memory)


def _files(pending: Sequence[Chunk]) -> Iterator[tuple[str, list[Any]]]:
    for chunk in pending[:MAX_REMEMBERED_FILES]:
        yield json.loads(chunk.position)["file"], [chunk.position, chunk.arrived_at]
