"""Feeds: how outside data becomes arrivals.

A feed looks at the outside world, says which arrivals are pending after those already in the
timeline, and reads their rows. It keeps nothing itself: the timeline's positions are its memory,
so it goes on where the timeline ends, whatever was killed or deleted in between.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import duration
from tidemark.define.helper_columns import helper
from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark.store.dead_letters import DEAD
from tidemark.store.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BYTES",
    "CHUNK",
    "DEAD",
    "Ahead",
    "Arrival",
    "Chunk",
    "Decoder",
    "Excerpt",
    "Feed",
    "Inlet",
    "Landed",
    "Player",
    "Span",
    "processing_time",
]

CHUNK = helper("chunk")
"""The column of a feed's rows with the index of their chunk."""

BYTES = helper("bytes")
"""The column of a feed's rows with the size of each."""

CLOCK_SLACK = duration("1 minute")
"""How far another machine's clock may be after this one's."""


@dataclass(frozen=True)
class Chunk:
    """One arrival to be.

    Example:
        Chunk(position='{"through": 1000}', arrived_at=1_767_225_600_000_000)  # 2026-01-01

    Args:
        position: where the feed stands after it, as JSON; it comes back in the timeline.
        arrived_at: processing time, in microseconds; never before that of the chunk before.
        bytes: its size, as far as it is known before it is read.
        rows: how many rows it has at most, where that is known before it is read.
        watermark: the watermark after it, for the `Manual` strategy.
        end: whether the stream ends with it.
        waiting: values of the watermark's column of which more comes with later chunks, as far as
            the feed knows: they are not silent, whatever this one brings of them.
    """

    position: str
    arrived_at: int
    bytes: int = 0
    rows: int = 0
    watermark: int | None = None
    end: bool = False
    waiting: tuple[str, ...] = ()


def processing_time(timestamp: int, before: int | None) -> int:
    """Return the processing time of an arrival, in microseconds.

    A file's modification time or a commit's timestamp may be wrong. One that lies after now would
    stay the processing time of all later arrivals, so it is replaced by now.

    Args:
        timestamp: when it arrived, as its origin says.
        before: the processing time of the arrival before; None for the first.
    """
    clamped = min(timestamp, time.time_ns() // 1000 + CLOCK_SLACK)
    return clamped if before is None else max(clamped, before)


class Feed(Protocol):
    """A source's way in."""

    @property
    def source(self) -> Source: ...

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        """What has come since, in the order in which it arrives, given all arrivals so far."""
        ...

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows | Iterator[pa.Table]:
        """The rows of `chunks`, protected as the source declares: for the engine, in memory, or in
        tables that come into memory one after the other, at least one.

        A feed whose `protects` is not true brings in no source with protected columns.

        The columns are those of the source and:

        - `CHUNK` BIGINT, the index in `chunks`;
        - `position` BIGINT, from 0 on in each chunk and growing, the same whenever it is read;
        - `read_from` STRING;
        - `DEAD`, as the function `dead_letter` makes it, if some rows may not fit the source's
          columns, which are null then;
        - `correlation_id` STRING, if the feed knows it; null lets the log make one;
        - `BYTES` BIGINT, if the feed knows it: added to the sizes of `chunks`.
        """
        ...

    def explain(self, error: PySparkException) -> DataError | None:
        """What is wrong with the data, when that is what the engine's error says."""
        ...


@runtime_checkable
class Ahead(Protocol):
    """A feed that reads while what it read before is worked on."""

    def ahead(self, chunks: Sequence[Chunk]) -> None:
        """Begin to read what will be asked for next; with no chunk, give up what was begun."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """A feed of which some rows may not fit the source's columns."""

    def decode(self, letters: pa.Table) -> pa.Table:
        """The rows of dead letters, which may have been mended, as `read` gives them.

        Args:
            letters: as their table has them, and `CHUNK`, in each of which `position` counts anew.
        """
        ...


@runtime_checkable
class Noticing(Protocol):
    """A feed that notices fields which its source does not declare, and passes over."""

    def undeclared(self) -> Mapping[int, tuple[str, ...]]:
        """Of each chunk of the last `read`, by its index, those that were seen, if any."""
        ...


class Player(Protocol):
    """Plays recorded data as files that land in a folder, for a feed to find."""

    def __call__(self, landing: Path, excerpt: "Excerpt") -> Iterator["Landed"]:
        """Write the files of an excerpt, one for each span, and yield each when it is there.

        A file that is there already is yielded and not written again.

        Args:
            landing: the folder, created if need be.
        """
        ...


@checked_class
@dataclass(frozen=True)
class Excerpt:
    """What of a recording is played, and how.

    Example:
        Excerpt(start="2013-01-01", days=3, span="6 hours")

    Args:
        start: where to begin, ISO 8601; by default with the first record.
        end: where to stop, exclusive; by default after the last record.
        days: how many days from `start`, instead of `end`.
        span: processing time covered by one file.
        speed: seconds of the recording for each second that passes; without one, at once.

    Raises:
        DefinitionError: a span that neither divides a day nor is whole days, or a speed that is
            not more than zero.
    """

    start: str | None = None
    end: str | None = None
    days: int | None = None
    span: str = "6 hours"
    speed: float | None = None

    def __post_init__(self) -> None:
        day, step = duration("1 day"), duration(self.span)
        if step <= 0 or (day % step and step % day):
            raise DefinitionError(f"A span divides a day or is whole days, unlike '{self.span}'.")
        if self.speed is not None and not 0 < self.speed < math.inf:
            raise DefinitionError(f"A speed is more than zero, unlike {self.speed:g}.")


@dataclass(frozen=True)
class Landed:
    """A file that a player wrote: the `number`th of `total`, counted from 1."""

    path: Path
    number: int
    total: int


@dataclass(frozen=True)
class Span:
    """What arrived in a span of processing time: the `number`th of `total`, counted from 1.

    Args:
        records: the source's fields, in the order in which they arrived; instants are text.
        ends: when the span ends, in microseconds.
    """

    records: "pd.DataFrame"
    ends: int
    number: int
    total: int


@checked_class
@dataclass(frozen=True)
class Inlet:
    """A source's way in as a domain offers it, in its module `feed`.

    Example:
        Inlet(source=visits, feed=lambda landing: FileFeed(visits, landing))

    Args:
        source: the source.
        feed: makes its feed for a landing folder.
        play: plays its recorded data into a landing folder, if it has any.
        spans: its recorded data by spans of processing time, for another way in than files.
        references: by name, what reads a reference of the source that the domain brings along; the
            table is made of it where it is not there yet, and is the user's from then on.
    """

    source: Source
    feed: Callable[[Path], Feed]
    play: Player | None = None
    spans: Callable[[Excerpt], Iterator[Span]] | None = None
    references: Mapping[str, Callable[[SparkSession], DataFrame]] = field(
        default_factory=dict[str, Callable[[SparkSession], DataFrame]]
    )
