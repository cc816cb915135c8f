"""When the sensor of a source that stands launches an ingest again.

An ingest that was refused would be refused again with each file that comes. So it is tried anew
where something is not as it was at the newest try:

| what | because |
| --- | --- |
| the source's definition, or its feed | a column's type was mended, a change was accepted |
| a file that was pending then | it was mended, or moved out of the folder |
| a day has passed | other causes are where no tick looks: a registry, a key, a right |
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.base.instants import over
from tidemark.store.arrival import Arrival
from tidemark_streaming.feed import Chunk, Feed
from tidemark_streaming.files import FileFeed

AGAIN = 86_400_000_000
"""Microseconds after which a source that stands is tried though nothing seems to have changed."""

MOST = 1000
"""Files that a cursor remembers: of a longer backlog the first ones, the others by the day."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Attempt:
    """What an ingest was launched on.

    Args:
        at: when, in microseconds.
        definition: of the source and its feed, as a digest.
        files: the files that were pending, each by name with its position and time.
    """

    at: int
    definition: str
    files: dict[str, list[Any]]

    def written(self) -> str:
        """As a sensor's cursor."""
        return json.dumps(asdict(self))

    def digest(self) -> str:
        """What tells it from every other one."""
        return hashlib.sha256(self.written().encode()).hexdigest()[:12]

    def holds(self, now: "Attempt", timeline: Sequence[Arrival]) -> bool:
        """Whether all is still as it was, so that what was refused would be refused again."""
        if self.definition != now.definition or over(AGAIN, self.at, now.at):
            return False
        positions = (json.loads(arrival.position) for arrival in timeline)
        taken = {position["file"] for position in positions if "file" in position}
        left = self.files.keys() - taken
        if len(self.files) >= MOST and not left and now.files:
            # All that is remembered of a long backlog came in: what stands is not among it.
            return False
        return all(now.files.get(name) == self.files[name] for name in left)


def attempt(feed: Feed, pending: Sequence[Chunk], at: int) -> Attempt:
    """What an ingest would be launched on now."""
    # A function of the user's is told by its name; where it lies in memory says nothing.
    told = _ADDRESS.sub("", repr((feed.source, feed)))
    files = dict(_files(pending)) if isinstance(feed, FileFeed) else {}
    return Attempt(at, hashlib.sha256(told.encode()).hexdigest()[:12], files)


def newest(cursor: str | None) -> Attempt | None:
    """The newest one, of a sensor's cursor; None before the first."""
    return Attempt(**json.loads(cursor)) if cursor else None


def _files(pending: Sequence[Chunk]) -> Iterator[tuple[str, list[Any]]]:
    for chunk in pending[:MOST]:
        yield json.loads(chunk.position)["file"], [chunk.position, chunk.arrived_at]
