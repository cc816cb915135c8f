"""The protocol of connectors, which turn outside data into arrivals.

A connector polls an outside system, returns the arrivals that are pending after those in the
timeline, and reads their rows. It has no state of its own: it continues from the position at the
end of the timeline, even after its process was killed or local files of Tidemark were deleted.
"""

import json
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
from tidemark.base.instants import parse_duration
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BYTES",
    "CHUNK",
    "CONTENT",
    "DEAD",
    "Arrival",
    "Chunk",
    "Connector",
    "Decoder",
    "Excerpt",
    "ExplainsErrors",
    "InWarehouse",
    "Ingestion",
    "Landed",
    "Player",
    "PollsRarely",
    "Prefetching",
    "Span",
    "processing_time",
]

CHUNK = name_helper("chunk")
"""The column of a connector's rows with the index of the chunk that a row belongs to."""

BYTES = name_helper("bytes")
"""The column of a connector's rows with the size of each row in bytes."""

CONTENT = name_helper("content")
"""The column of a connector's rows with the fields that a dead letter of the row has, like `DEAD`,
but for all rows. Only the rows of a source with computed columns have it."""

CLOCK_SLACK = parse_duration("1 minute")
"""How far the clock of another machine may be ahead of the clock of this machine."""


@dataclass(frozen=True)
class Chunk:
    """A pending arrival: what a connector lists before the arrival's rows are read.

    Example:
        Chunk(position='{"through": 1000}', arrived_at=1_767_225_600_000_000)  # 2026-01-01

    Args:
        position: the connector's position after this arrival, as JSON. The timeline stores the
            position and passes it to later polls.
        arrived_at: processing time, in microseconds; never before the processing time of the
            previous chunk.
        bytes: the size of the arrival, if the connector knows it before reading and the rows have
            no `BYTES`.
        rows: the maximum number of rows, if the connector knows it before reading.
        watermark: the watermark after this arrival, in microseconds. Only the `Manual` strategy
            and derived sources use it; with None, the watermark does not move.
        end: true if the stream ends with this arrival.
        waiting: partitions of the watermark (values of its column) that have more events in later
            chunks, as far as the connector knows. These partitions are not idle, even if this chunk
            has none of their events.
        silent_since: for a heartbeat, the time since which polls have found no data, in
            microseconds. Only the ingest sets it; a connector does not.

    Raises:
        DefinitionError: `position` is not JSON.
    """

    position: str
    arrived_at: int
    bytes: int = 0
    rows: int = 0
    watermark: int | None = None
    end: bool = False
    waiting: tuple[str, ...] = ()
    silent_since: int | None = None

    def __post_init__(self) -> None:
        try:
            json.loads(self.position)
        except (TypeError, ValueError):
            raise DefinitionError(
                f"A connector returned the position {self.position!r}, which is not JSON: return "
                "`Chunk(position=json.dumps(...), ...)`."
            ) from None


def processing_time(timestamp: int, previous_time: int | None) -> int:
    """Return the processing time of an arrival, in microseconds.

    A file's modification time or a commit's timestamp may be wrong. A time in the future would stay
    the processing time of all later arrivals, so the result is at most now plus `CLOCK_SLACK`. It
    is never before the processing time of the previous arrival.

    Args:
        timestamp: the time of the arrival according to the outside system, in microseconds.
        previous_time: the processing time of the previous arrival; None for the first arrival.
    """
    clamped = min(timestamp, time.time_ns() // 1000 + CLOCK_SLACK)
    if previous_time is None:
        return clamped
    return max(clamped, previous_time)


class Connector(Protocol):
    """The protocol of connectors: an object that reads the data of a source."""

    @property
    def source(self) -> Source: ...

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        """Return the pending arrivals, in order. `timeline` has all previous arrivals."""
        ...

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows | Iterator[pa.Table]:
        """Return the rows of `chunks`, protected as the source declares.

        The rows are a DataFrame of the engine, a table in memory, or an iterator of at least one
        table, which is read table by table. A source with protected columns is only ingested if the
        connector's `protects` is true.

        The columns are those that the source reads from the data (`Source.record_columns`) and:

        - `CHUNK` BIGINT, the index in `chunks`;
        - `position` BIGINT, ascending from 0 in each chunk, and the same at every read;
        - `read_from` STRING;
        - `DEAD`, as the function `dead_letter` creates it, if some rows may not fit the source's
          columns. In these rows, the source's columns are null;
        - `CONTENT`, as the function `content_of` creates it, if the source has computed columns and
          its dead letters should keep the content of the row;
        - `correlation_id` STRING, if the connector knows it; the event log generates an id for
          null;
        - `BYTES` BIGINT, if the connector knows the size of each row. The sizes are added to the
          `bytes` of the chunk.
        """
        ...


@runtime_checkable
class ExplainsErrors(Protocol):
    """A connector that can explain an error of the engine by a problem in the connector's data.

    The engine reads or computes the rows of such a connector.
    """

    def explain_error(self, error: PySparkException) -> DataError | None:
        """Return an error about the data, if a problem in the data caused the engine's error; else
        None."""
        ...


@runtime_checkable
class Prefetching(Protocol):
    """A connector that prefetches: it reads the next chunks while earlier ones are processed."""

    def prefetch(self, chunks: Sequence[Chunk]) -> None:
        """Start to read the chunks that will be requested next. Without chunks, only cancel the
        previous prefetch."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """A connector that can decode dead letters again."""

    def decode_letters(self, letters: pa.Table) -> pa.Table:
        """Decode dead letters, which may have been corrected. Return rows as `read` returns them.

        Args:
            letters: rows of the dead-letter table. They also have the column `CHUNK`, and their
                `position` counts from 0 in each chunk.
        """
        ...


@runtime_checkable
class InWarehouse(Protocol):
    """A connector that reads other tables of the warehouse that it ingests into."""

    def in_warehouse(self, location: str, database: str) -> "Connector":
        """Return a copy of the connector that reads from the warehouse at `location`, in
        `database`."""
        ...


@runtime_checkable
class EstimatesRows(Protocol):
    """A connector whose query reads many more rows than its chunks have."""

    def rows_to_read(self) -> int:
        """Return the approximate number of rows that the query of the last `read` reads."""
        ...


@runtime_checkable
class ReportsUndeclared(Protocol):
    """A connector that notices and ignores fields that its source does not declare."""

    def undeclared_fields(self) -> Mapping[int, tuple[str, ...]]:
        """Return the undeclared fields of the chunks in the last `read`, by chunk index."""
        ...


@runtime_checkable
class PollsRarely(Protocol):
    """A connector whose polls cost requests, so that there should not be many."""

    @property
    def poll_seconds(self) -> float:
        """The minimum time between two polls that find nothing."""
        ...


class Player(Protocol):
    """A player of recorded data: it writes files to a folder that a connector reads."""

    def __call__(self, landing: Path, excerpt: "Excerpt") -> Iterator["Landed"]:
        """Write the files of an excerpt, one per span, and yield each file when it is complete.

        A file that exists already is yielded, but not written again.

        Args:
            landing: the folder, which is created if necessary.
        """
        ...


@checked_class
@dataclass(frozen=True)
class Excerpt:
    """The part of a recording to play, and its pace.

    Example:
        Excerpt(start="2013-01-01", days=3, span="6 hours")

    Args:
        start: the processing time at which to begin, ISO 8601; by default the start of the day of
            the first record.
        end: the processing time at which to stop, exclusive; by default after the last record.
        days: the number of days to play from `start`. If `end` is also set, the earlier limit
            applies.
        span: the processing time that one file covers.
        speed: seconds of the recording per second of real time. By default, the files are written
            without pauses.

    Raises:
        DefinitionError: the span neither divides a day nor is whole days, or the speed is not
            greater than zero.
    """

    start: str | None = None
    end: str | None = None
    days: int | None = None
    span: str = "6 hours"
    speed: float | None = None

    def __post_init__(self) -> None:
        day = parse_duration("1 day")
        step = parse_duration(self.span)
        if step <= 0 or (day % step and step % day):
            raise DefinitionError(f"span must divide a day or be whole days (got '{self.span}').")
        if self.speed is not None and not 0 < self.speed < math.inf:
            raise DefinitionError(f"speed must be greater than zero (got {self.speed:g}).")


@dataclass(frozen=True)
class Landed:
    """A file that a player wrote: number `number` of `total`, counted from 1."""

    path: Path
    number: int
    total: int


@dataclass(frozen=True)
class Span:
    """The records of a span of processing time: number `number` of `total`, counted from 1.

    Args:
        records: the source's fields, in the order of arrival; instants are text.
        ends: the end of the span, in microseconds.
    """

    records: "pd.DataFrame"
    ends: int
    number: int
    total: int


@checked_class
@dataclass(frozen=True)
class Ingestion:
    """The connection of a source to its connector, as a domain's module `connectors` defines
    it.

    Example:
        Ingestion(source=visits, connector=lambda landing: FileConnector(visits, landing))

    Args:
        source: the source.
        connector: creates the connector of the source for the path or address of a landing folder.
        play: writes the source's recorded data into a landing folder. None if the source has no
            recorded data.
        spans: returns the source's recorded data by spans of processing time, for connectors that
            do not read files.
        lookups: functions that read the lookup tables of the domain, by name. If a lookup table
            does not exist, it is created from the result of its function; after that, only the user
            changes it.
    """

    source: Source
    connector: Callable[[str], Connector]
    play: Player | None = None
    spans: Callable[[Excerpt], Iterator[Span]] | None = None
    lookups: Mapping[str, Callable[[SparkSession], DataFrame]] = field(
        default_factory=dict[str, Callable[[SparkSession], DataFrame]]
    )
