"""The state: stored panes, log-structured, and how far they are complete.

A run appends the partials of its arrivals; readers merge what belongs together. Each commit also
carries a marker row: which arrivals it covers, for which windows, and the coverage that results.
Commits are numbered without gaps by `seq`, and a commit under a number that is taken is refused,
so of two runs that start from the same coverage only one can count its events.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.errors import ConflictError
from tidemark.instant import BEGINNING, INFINITY
from tidemark.judge import VERDICTS
from tidemark.transform import WindowedTransform
from tidemark.warehouse import Warehouse
from tidemark.window import Session

Ranges = tuple[tuple[int, int], ...]
"""Ranges [start, end) of instants, in microseconds."""


@dataclass(frozen=True)
class Position:
    """The state of a source's timeline after an arrival.

    Args:
        arrival: the arrival's number, -1 before the first.
        watermark: microseconds after it; None is minus infinity.
        clock: its processing time in microseconds; None before the first.
    """

    arrival: int = -1
    watermark: int | None = None
    clock: int | None = None


@dataclass(frozen=True)
class Cover:
    """A range of window starts [start, end) that a backfill made complete through `at`."""

    start: int
    end: int
    at: Position


@dataclass(frozen=True)
class Coverage:
    """Through which arrival each window is complete.

    Args:
        at: for every window that no cover holds.
        covers: ranges that a backfill brought further than `at`; the last of those that hold a
            window counts.
        whole: a cover holds the windows that lie whole in it; otherwise those that start in it.
    """

    at: Position = Position()
    covers: tuple[Cover, ...] = ()
    whole: bool = False

    @property
    def through(self) -> int:
        """The newest arrival through which any window is complete."""
        return max([self.at.arrival, *(c.at.arrival for c in self.covers)])

    def advance(self, at: Position) -> "Coverage":
        """After an incremental run: covers that it caught up with are forgotten."""
        return Coverage(at, tuple(c for c in self.covers if c.at.arrival > at.arrival))

    def cover(self, new: Cover) -> "Coverage":
        """After a backfill of a range."""
        if new.at.arrival <= self.at.arrival:
            return self
        rest = [piece for c in self.covers for piece in _cut(c, new)]
        return replace(self, covers=tuple(sorted([*rest, new], key=lambda c: c.start)))

    def pick(self, what: str) -> Column:
        """`arrival` or `watermark` (BIGINT) of the position that holds for each row's window."""
        picked = F.lit(getattr(self.at, what)).cast("bigint")
        start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
        for c in self.covers:
            inside = (start >= c.start) & (end <= c.end if self.whole else start < c.end)
            picked = F.when(inside, F.lit(getattr(c.at, what)).cast("bigint")).otherwise(picked)
        return picked


def _cut(old: Cover, new: Cover) -> list[Cover]:
    pieces = []
    if old.start < new.start:
        pieces.append(replace(old, end=min(old.end, new.start)))
    if old.end > new.end:
        pieces.append(replace(old, start=max(old.start, new.end)))
    return pieces


@dataclass(frozen=True)
class Marker:
    """What one commit of the state did.

    Args:
        run: the run's id.
        started: when it began, in microseconds.
        mode: `incremental`, `backfill` or `correction`; `rollup` for a roll-up's run, which stores
            nothing.
        seq: the commit's number, from 0; of a roll-up's run, that of the base's commit that it
            follows through.
        before: the coverage that the run started from.
        after: the coverage with this commit.
        ranges: the window starts, each [start, end), that the commit is about; none is no bound.
        answer: `as_streamed` or `complete`.
    """

    run: str = ""
    started: int = 0
    mode: str = "incremental"
    seq: int = -1
    before: Coverage = field(default_factory=Coverage)
    after: Coverage = field(default_factory=Coverage)
    ranges: Ranges = ()
    answer: str = "as_streamed"

    @property
    def replaces(self) -> bool:
        """Whether the commit put all that it is about in the place of what was there."""
        return self.mode in ("backfill", "correction") or bool(self.ranges)

    @property
    def at(self) -> Position:
        """The position through which this commit's windows are complete; the furthest one where
        they differ. Of a roll-up's run, that of all its windows."""
        if self.mode == "rollup":
            return self.after.at
        ahead = (
            c.at
            for c in self.after.covers
            if any(start < c.end and c.start < end for start, end in self.ranges)
        )
        return max((self.after.at, *ahead), key=attrgetter("arrival"))

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Marker":
        plain = json.loads(text)
        for side in ("before", "after"):
            plain[side] = Coverage(
                Position(**plain[side]["at"]),
                tuple(
                    Cover(c["start"], c["end"], Position(**c["at"])) for c in plain[side]["covers"]
                ),
            )
        plain["ranges"] = tuple((start, end) for start, end in plain["ranges"])
        return cls(**plain)


class State:
    """The state table of a transform."""

    def __init__(self, warehouse: Warehouse, transform: WindowedTransform) -> None:
        self.warehouse = warehouse
        self.table = transform.state_table

    def read(self) -> DataFrame:
        """The stored partials, without the markers."""
        return self.warehouse.read(self.table).where("marker IS NULL").drop("marker")

    def last(self) -> Marker:
        """The newest commit; one with seq -1 before the first."""
        if not self.warehouse.exists(self.table):
            return Marker()
        rows = self.warehouse.read(self.table).where("marker IS NOT NULL")
        newest = rows.agg(F.max_by("marker", "seq")).first()
        return Marker.from_json(newest[0]) if newest and newest[0] else Marker()

    def since(self, seq: int) -> list[Marker]:
        """The commits after the one of that number, in order."""
        rows = self.warehouse.read(self.table).where(F.col("marker").isNotNull())
        newer = rows.where(F.col("seq") > seq).orderBy("seq").select("marker")
        return [Marker.from_json(row["marker"]) for row in newer.collect()]

    def commit(self, partials: DataFrame, marker: Marker) -> Counter[int]:
        """Store a run's partials under its number, and count its events by verdict.

        Raises:
            ConflictError: another run took the number first; nothing was stored.
        """
        rows = partials.withColumns(
            {"seq": F.lit(marker.seq).cast("bigint"), "marker": F.lit(None).cast("string")}
        )
        self.warehouse.create(self.table, rows, f"Stored panes of {self.table}")
        note = self.warehouse.spark.createDataFrame(
            [(marker.seq, marker.to_json())], "seq BIGINT, marker STRING"
        )
        rows = rows.unionByName(note, allowMissingColumns=True)
        if marker.replaces:
            where = f"({within(marker.ranges)} AND marker IS NULL) OR seq = {marker.seq}"
            counts = self.warehouse.replace(
                rows, self.table, where, self.table, marker.seq, **_by_verdict()
            )
        else:
            counts = self.warehouse.append(
                rows, self.table, self.table, marker.seq, **_by_verdict()
            )
        if counts is None:
            raise ConflictError(f"Another run wrote '{self.table}' at the same time.")
        return _counter(counts)

    def counts(self, marker: Marker) -> Counter[int]:
        """The events of an earlier commit, by verdict."""
        return by_verdict(self.warehouse.read(self.table).where(F.col("seq") == marker.seq))


def put(warehouse: Warehouse, rows: DataFrame, table: str, comment: str, marker: Marker) -> None:
    """Write what a commit gives for a table of windows, once: in the place of all rows of its
    windows, where it replaces them."""
    warehouse.create(table, rows, comment)
    if marker.replaces:
        warehouse.replace(rows, table, within(marker.ranges), table, marker.seq)
    else:
        warehouse.append(rows, table, table, marker.seq)


def by_verdict(partials: DataFrame) -> Counter[int]:
    """How many events are in partials, by verdict."""
    counts = partials.agg(*(c.alias(n) for n, c in _by_verdict().items())).first()
    return _counter(counts.asDict() if counts else {})


def _by_verdict() -> dict[str, Column]:
    events = F.col("events")
    return {
        word: F.sum(F.when(F.col("verdict") == code, events)) for code, word in VERDICTS.items()
    }


def _counter(counts: Mapping[str, int | None]) -> Counter[int]:
    return Counter({code: counts.get(word) or 0 for code, word in VERDICTS.items()})


def unsettled(transform: WindowedTransform, before: Coverage) -> Ranges:
    """The starts of the windows that are not settled when an incremental run begins."""
    end = settled(transform, before)
    return () if end is None else ((max(end - transform.window.reach, BEGINNING), INFINITY),)


def settled(transform: WindowedTransform, before: Coverage) -> int | None:
    """The end, in microseconds, up to which windows are settled when an incremental run begins: no
    window that ended by then can admit an event of later arrivals. None: no window is."""
    watermark = before.at.watermark
    if watermark is None or isinstance(transform.window, Session):
        return None
    return watermark - transform.allowed_lateness


def between(start: int | None, end: int | None) -> Ranges:
    """The ranges with these bounds; none where there is no bound."""
    return () if start is None or end is None else ((start, end),)


def within(ranges: Ranges, column: str = "window_start") -> str:
    """A SQL condition: the column, a TIMESTAMP, is in one of the ranges; without any, always."""
    inside = [
        f"({column} >= timestamp_micros({start}) AND {column} < timestamp_micros({end}))"
        for start, end in ranges
    ]
    return f"({' OR '.join(inside)})" if inside else "TRUE"
