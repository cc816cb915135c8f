"""The state: stored panes, log-structured, and how far they are complete.

A run appends the partials of its arrivals; readers merge what belongs together. Each commit also
carries a marker row: which arrivals it covers, for which windows, and the coverage that results.
Commits are numbered without gaps by `seq`, and a commit under a number that is taken is refused,
so of two runs that start from the same coverage only one can count its events.
"""

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import ConflictError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.transform import WindowedTransform
from tidemark.define.verdict import VERDICTS
from tidemark.define.windows import Session
from tidemark.store.coverage import Coverage
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges, within
from tidemark.store.warehouse import Warehouse


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
