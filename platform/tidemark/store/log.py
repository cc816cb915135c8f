"""The arrival log: a source's events with the facts of their arrival, and the timeline of arrivals.

Each source has two append-only tables. The *log* has the events: their own columns and, with each,
the arrival that brought it, its position in it, the processing time, and the watermark just before
the arrival, which is what the event is judged against for ever. The *timeline* has one row for
each arrival: 0, 1, 2, … without gaps.

The timeline is the truth about what has arrived. A commit writes the log's rows first and the
timeline's rows second; rows of the log beyond the timeline's last arrival are what a writer left
that died in between. Readers don't ask for them, and the next writer removes them.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.base.errors import ConflictError, DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.source import ARRIVAL_COLUMNS, Source
from tidemark.store.fence import Fence
from tidemark.store.warehouse import Warehouse

_TIMELINE = {
    "arrival": "BIGINT",
    "arrived_at": "TIMESTAMP",
    "watermark_before": "TIMESTAMP",
    "watermark_after": "TIMESTAMP",
    "rows": "BIGINT",
    "min_event_time": "TIMESTAMP",
    "max_event_time": "TIMESTAMP",
    "bytes": "BIGINT",
    "position": "STRING",
    "watermark_state": "STRING",
    "references": "STRING",
}
_FILE_BYTES = 32 << 20


@dataclass(frozen=True)
class Arrival:
    """One arrival: a set of events that is processed whole or not at all.

    Instants are microseconds since 1970; `None` is minus infinity for a watermark, and "no row has
    one" for an event time.

    Args:
        arrival: its number.
        arrived_at: its processing time.
        before: the watermark before it, by which its events are judged.
        after: the watermark after it.
        rows: how many events it brought; none for a heartbeat and for the end of the stream.
        min_event_time: the earliest event time.
        max_event_time: the newest event time.
        bytes: the size of what was read.
        position: where the feed stands after it, as JSON.
        watermark_state: what the watermark strategy remembers, as text.
        references: the versions that the source's references had, as JSON.
    """

    arrival: int
    arrived_at: int
    before: int | None
    after: int | None
    rows: int
    min_event_time: int | None
    max_event_time: int | None
    bytes: int
    position: str
    watermark_state: str | None = None
    references: str = "{}"

    @property
    def ends(self) -> bool:
        """Whether the stream has ended with it."""
        return self.after == INFINITY


class Log:
    """The log and the timeline of one source.

    Any number of readers may use it. A writer calls `recover` once before its first `append`, and
    is refused from the moment at which another writer calls `recover`.
    """

    def __init__(self, warehouse: Warehouse, source: Source) -> None:
        self.warehouse = warehouse
        self.source = source
        app = f"{source.name}_ingest"
        self._log_fence = Fence(warehouse, source.log_table, app)
        self._timeline_fence = Fence(warehouse, source.timeline_table, app)
        # Whether the tables wait for the first append, which makes them.
        self._fresh = False

    def create(self) -> None:
        """Create both tables, unless they are there.

        Raises:
            DefinitionError: the log that is there has other columns than the source.
            DataError: the warehouse can't be written, or a newer Tidemark wrote the tables.
        """
        name, columns = self.source.name, {**self.source.columns, **ARRIVAL_COLUMNS}
        with_log = self.warehouse.create(
            self.source.log_table, _ddl(columns), f"Events of {name} with the facts of arrival."
        )
        with_timeline = self.warehouse.create(
            self.source.timeline_table, _ddl(_TIMELINE), f"One row for each arrival of {name}."
        )
        self._fresh = with_log and with_timeline and not self.warehouse.registered
        if not self._fresh:
            self._check_columns(columns)

    def timeline(self, after: int = -1, through: int | None = None) -> list[Arrival]:
        """The arrivals with `after` < number <= `through`, in order."""
        if self._fresh:
            return []
        rows = self.warehouse.read(self.source.timeline_table).where(F.col("arrival") > after)
        if through is not None:
            rows = rows.where(F.col("arrival") <= through)
        return arrivals(rows.orderBy("arrival"))

    def last(self) -> Arrival | None:
        """The newest arrival, `None` when nothing has arrived yet."""
        if self._fresh:
            return None
        rows = self.warehouse.read(self.source.timeline_table)
        return next(iter(arrivals(rows.orderBy(F.desc("arrival")).limit(1))), None)

    def read(
        self, after: int, through: int, start: int | None = None, end: int | None = None
    ) -> DataFrame:
        """The log's rows with `after` < arrival <= `through`, which is in the timeline.

        Args:
            start, end: only what happened in [start, end), in microseconds; None is no bound.
        """
        number = F.col("arrival")
        rows = self.warehouse.read(self.source.log_table)
        rows = rows.where((number > after) & (number <= through))
        # Written so that Delta passes over files by their least and greatest event time.
        time = F.col(f"`{self.source.event_time}`")
        if start is not None and start > BEGINNING:
            rows = rows.where(time >= F.timestamp_micros(F.lit(start)))
        if end is not None and end < INFINITY:
            rows = rows.where(time < F.timestamp_micros(F.lit(end)))
        return rows

    def span(self, after: int, through: int) -> tuple[int, int] | None:
        """The earliest and the newest event time, in microseconds, of the arrivals with `after` <
        number <= `through`; `None` where no event has one."""
        number = F.col("arrival")
        rows = self.warehouse.read(self.source.timeline_table)
        found = rows.where((number > after) & (number <= through)).agg(
            F.unix_micros(F.min("min_event_time")), F.unix_micros(F.max("max_event_time"))
        )
        oldest, newest = found.collect()[0]
        return None if oldest is None else (oldest, newest)

    def reached(self) -> DataFrame:
        """The watermark after each arrival: `arrival` and `reached`, BIGINT microseconds."""
        timeline = self.warehouse.read(self.source.timeline_table)
        return timeline.select("arrival", F.unix_micros("watermark_after").alias("reached"))

    def ticks(self, interval: int) -> DataFrame:
        """When the processing clock reached the multiples of an interval for which events waited.

        Columns, all BIGINT: `tick`, a multiple of `interval` in microseconds, the first one after
        some arrival; `arrival`, the first one with a clock that is not before it (null: not yet);
        `watermark`, the one before that arrival.
        """
        timeline = self.warehouse.read(self.source.timeline_table)
        clock = F.unix_micros("arrived_at")
        first = timeline.groupBy(tick(clock, interval).alias("tick")).agg(
            F.min("arrival").alias("first"),
            F.min_by(F.unix_micros("watermark_before"), "arrival").alias("before"),
        )
        # Arrivals that wait for a tick are followed by those that found it reached.
        order = Window.partitionBy(F.lit(0)).orderBy("tick")
        return first.select(
            "tick",
            F.lead("first").over(order).alias("arrival"),
            F.lead("before").over(order).alias("watermark"),
        )

    def recover(self) -> None:
        """Become the log's writer, and delete what another left beyond the timeline.

        Raises:
            ConflictError: other writers do the same at the same time.
        """
        if self._fresh:
            return
        # The timeline first: once it is fenced, the rows beyond it can't become part of it.
        self._timeline_fence.take()
        last = self.last()
        self._log_fence.take(removing=f"arrival > {-1 if last is None else last.arrival}")

    def append(self, rows: DataFrame, arrivals: Sequence[Arrival]) -> None:
        """Add whole arrivals: the log's rows in one commit, then the timeline's in another.

        Args:
            rows: the events of all these arrivals: the source's columns, `arrival`, `position`,
                `read_from` and `unparsed`. The other facts are taken from `arrivals`.
            arrivals: the arrivals in order, following the timeline's last one.

        Raises:
            ConflictError: another writer has taken over; what was written is without effect.
        """
        if self._fresh or any(a.rows for a in arrivals):
            self._log_fence.append(self._with_facts(rows, arrivals))
        self._commit(arrivals)
        self._fresh = False
        # Whoever takes over fences the timeline before the log: this commit vouches for both.
        if not self._timeline_fence.held():
            raise ConflictError(
                f"Another ingest of '{self.source.name}' has taken over: this one ends, nothing "
                "is lost or counted twice."
            )

    def _commit(self, arrivals: Sequence[Arrival]) -> None:
        names = list(_TIMELINE)
        schema = ", ".join(f"{n} {t.replace('TIMESTAMP', 'BIGINT')}" for n, t in _TIMELINE.items())
        table = self.warehouse.spark.createDataFrame([astuple(a) for a in arrivals], schema)
        columns = [
            F.timestamp_micros(n).alias(n) if _TIMELINE[n] == "TIMESTAMP" else F.col(n)
            for n in names
        ]
        self._timeline_fence.append(table.select(*columns).coalesce(1))

    def _with_facts(self, rows: DataFrame, arrivals: Sequence[Arrival]) -> DataFrame:
        """`rows` as the log's columns, in a few files that each hold a range of arrivals."""
        files = _files(arrivals)
        facts = self.warehouse.spark.createDataFrame(
            [(a.arrival, a.arrived_at, a.before, f) for a, f in zip(arrivals, files, strict=True)],
            "arrival BIGINT, arrived_at BIGINT, watermark BIGINT, file INT",
        )
        identity = F.concat_ws(":", F.lit(self.source.name), "arrival", "position")
        table = rows.join(F.broadcast(facts), "arrival")
        count = files[-1] + 1
        table = table.coalesce(1) if count == 1 else table.repartitionById(count, "file")
        return table.sortWithinPartitions("arrival", "position").select(
            *(F.col(f"`{c}`") for c in self.source.columns),
            "arrival",
            "position",
            F.timestamp_micros("arrived_at").alias("arrived_at"),
            F.timestamp_micros("watermark").alias("watermark"),
            "read_from",
            identity.alias("correlation_id"),
            "unparsed",
        )

    def _check_columns(self, columns: dict[str, str]) -> None:
        found = {f.name: f.dataType for f in self.warehouse.read(self.source.log_table).schema}
        schema = cast(StructType, StructType.fromDDL(_ddl(columns)))
        wanted = {f.name: f.dataType for f in schema}
        if wanted == found:
            return
        odd = sorted(n for n in {*wanted, *found} if wanted.get(n) != found.get(n))
        raise DefinitionError(
            f"Source '{self.source.name}' differs from its log '{self.source.log_table}' in "
            f"{', '.join(odd)}: a log keeps its columns, so give the changed source a new name."
        )


def tick(clock: Column, interval: int) -> Column:
    """The first multiple of an interval after an instant of the clock, BIGINT microseconds."""
    return clock - F.pmod(clock, F.lit(interval)) + F.lit(interval)


def arrivals(rows: DataFrame) -> list[Arrival]:
    """The arrivals that rows of a timeline tell of, in their order."""
    columns = [
        F.unix_micros(name) if kind == "TIMESTAMP" else F.col(name)
        for name, kind in _TIMELINE.items()
    ]
    return [Arrival(*row) for row in rows.select(*columns).collect()]


def _files(arrivals: Sequence[Arrival]) -> list[int]:
    """For each arrival, which of the commit's files its rows go to: about as many bytes to each."""
    total = sum(a.bytes for a in arrivals)
    count = total // _FILE_BYTES + 1
    ends = accumulate(a.bytes for a in arrivals)
    return [(e - a.bytes) * count // max(total, 1) for a, e in zip(arrivals, ends, strict=True)]


def _ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
