"""Quarantine: rows that failed an expectation of level `error`, instead of being published.

Table `<asset>_quarantine` has one row for each window and keys that is withheld: the row as it
would have been published, every expectation that it fails with what was observed, and whether it
is `held` or was `discarded`. A window that had been published before keeps its last good row.

A withheld window is judged again when it changes, and leaves when it passes. A person may `release`
it, which publishes it as it is, or `discard` it, which leaves it out; either holds until the
window's values change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.transform import WindowedTransform
from tidemark.quality.evidence import Batch
from tidemark.quality.gx import ROW
from tidemark.store.ranges import within
from tidemark.store.warehouse import Warehouse, translated

RELEASED, HELD, DISCARDED = "released", "held", "discarded"

FAILED = "array<struct<expectation: string, level: string, observed: string, expected: string>>"


@dataclass(frozen=True)
class Settled:
    """What became of the rows that fail.

    Args:
        withheld: how many are in quarantine.
        released: the numbers of those that a person had released as they are now.
        kept: the published rows that stay in the place of withheld ones, where a backfill would
            replace them; None otherwise.
    """

    withheld: int = 0
    released: list[int] = field(default_factory=list[int])
    kept: DataFrame | None = None


@dataclass(frozen=True)
class Choice:
    """Which withheld windows: those that start in [start, end), of these keys.

    Args:
        start, end: microseconds; None is no bound.
        keys: key to value, as text.
    """

    start: int | None = None
    end: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self, transform: WindowedTransform) -> None:
        """Refuse keys that a transform has not.

        Raises:
            DefinitionError: a key that is none of its.
        """
        for key in self.keys:
            if key not in transform.keys:
                there = ", ".join(transform.keys) or "none"
                raise DefinitionError(
                    f"Asset '{transform.name}' has no key '{key}'; its keys are {there}."
                )


def create(warehouse: Warehouse, transform: WindowedTransform, rows: DataFrame) -> None:
    """Create the table of a transform, unless it is there."""
    table = rows.drop("quality", "gone").withColumns(
        {
            "failed": F.lit(None).cast(FAILED),
            "status": F.lit(None).cast("string"),
            "run": F.lit(None).cast("string"),
        }
    )
    comment = f"Windows of {transform.name} that failed an expectation"
    warehouse.create(transform.quarantine_table, table, comment)


def settle(batch: Batch, marked: DataFrame) -> Settled:
    """Bring the quarantine up to date with the judged rows of a commit.

    Args:
        marked: with `ROW`, `failed`, and whether they are `_bad` or `_gone`.
    """
    warehouse, transform, marker = batch.warehouse, batch.transform, batch.marker
    table, held = transform.quarantine_table, batch.withheld()
    bad = marked.where("_bad")
    values = [*transform.aggregates, "events", "late_events"]

    def unchanged(others: DataFrame) -> DataFrame:
        same = batch.same_window("r", "o") & _struct("r", values).eqNullSafe(_struct("o", values))
        return bad.alias("r").join(others.alias("o"), same, "left_semi").select(ROW)

    released = unchanged(batch.published().where(F.col("quality") == RELEASED)).collect()
    discarded = unchanged(held.where(F.col("status") == DISCARDED)).collect()
    again = [r[0] for r in released]
    bad = bad.where(~F.col(ROW).isin(again)) if again else bad
    was = F.col(ROW).isin([r[0] for r in discarded]) if discarded else F.lit(False)
    rows = bad.dropDuplicates([ROW]).select(
        *(c for c in held.columns if c not in ("status", "run")),
        F.when(was, DISCARDED).otherwise(HELD).alias("status"),
        F.lit(marker.run).alias("run"),
    )
    withheld = rows.count()
    if marker.replaces:
        warehouse.replace(rows, table, within(marker.ranges), table, marker.seq)
        published = batch.published().alias("p")
        kept = published.join(rows.alias("r"), batch.same_window("p", "r"), "left_semi")
        return Settled(withheld, again, kept if withheld else None)
    others = marked.where(~F.col("_bad") | F.col(ROW).isin(again)).alias("m")
    leaving = held.alias("h").join(others, batch.same_window("h", "m"), "left_semi")
    changes = rows.withColumn("gone", F.lit(False)).unionByName(
        leaving.withColumn("gone", F.lit(True))
    )
    if withheld or not leaving.isEmpty():
        warehouse.merge(changes, table, transform.by_window, "TRUE", table, marker.seq)
    return Settled(withheld, again)


def read(
    warehouse: Warehouse, transform: WindowedTransform, choice: Choice | None = None
) -> DataFrame:
    """The withheld windows.

    Raises:
        DefinitionError: a key that the asset has not.
        DataError: nothing was ever withheld.
    """
    chosen = choice or Choice()
    chosen.check(transform)
    if not warehouse.exists(transform.quarantine_table):
        raise DataError(f"Nothing of '{transform.name}' was ever judged: it has no quarantine.")
    rows = warehouse.read(transform.quarantine_table)
    if chosen.start is not None:
        rows = rows.where(f"window_start >= timestamp_micros({chosen.start})")
    if chosen.end is not None:
        rows = rows.where(f"window_start < timestamp_micros({chosen.end})")
    for key, value in chosen.keys.items():
        rows = rows.where(F.col(key).cast("string").eqNullSafe(F.lit(value)))
    return rows


def release(warehouse: Warehouse, transform: WindowedTransform, choice: Choice) -> list[int]:
    """Publish withheld windows as they are, marked `released`; the start of each, microseconds.

    Raises:
        DefinitionError: a key that the asset has not.
        DataError: no such window is withheld.
        ConflictError: a run changed them at the same time.
    """
    rows, starts = _chosen(warehouse, transform, choice)
    columns = warehouse.read(transform.table).columns
    try:
        ready = rows.withColumn("quality", F.lit(RELEASED)).select(columns)
        # What a run published meanwhile is newer, and stays.
        _merge(
            warehouse,
            transform,
            ready,
            transform.table,
            "WHEN MATCHED AND t.seq < s.seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )
        _merge(
            warehouse,
            transform,
            rows,
            transform.quarantine_table,
            "WHEN MATCHED AND t.seq = s.seq THEN DELETE",
        )
        return starts
    finally:
        rows.unpersist()


def discard(warehouse: Warehouse, transform: WindowedTransform, choice: Choice) -> list[int]:
    """Leave withheld windows out for good, unless they change; otherwise as `release`."""
    rows, starts = _chosen(warehouse, transform, choice)
    try:
        _merge(
            warehouse,
            transform,
            rows,
            transform.quarantine_table,
            f"WHEN MATCHED AND t.seq = s.seq THEN UPDATE SET t.status = '{DISCARDED}'",
        )
        return starts
    finally:
        rows.unpersist()


def computed(warehouse: Warehouse, transform: WindowedTransform, where: str) -> DataFrame:
    """The rows as they were computed: published or withheld."""
    published = warehouse.read(transform.table).where(where)
    if not transform.expectations or not warehouse.exists(transform.quarantine_table):
        return published
    withheld = warehouse.read(transform.quarantine_table).where(where)
    on = [F.col(f"p.{c}").eqNullSafe(F.col(f"w.{c}")) for c in transform.by_window]
    good = published.alias("p").join(withheld.alias("w"), on, "left_anti")
    return good.unionByName(withheld.drop("failed", "status", "run"), allowMissingColumns=True)


def _chosen(
    warehouse: Warehouse, transform: WindowedTransform, choice: Choice
) -> tuple[DataFrame, list[int]]:
    """The rows that are held, and their window starts."""
    rows = read(warehouse, transform, choice).where(F.col("status") == HELD).persist()
    # Read before anything is written, which makes the engine forget what it kept of the table.
    starts = rows.select(F.unix_micros("window_start").alias("start")).orderBy("start").collect()
    if not starts:
        rows.unpersist()
        raise DataError(
            f"No such window of '{transform.name}' is held in quarantine: `tidemark quarantine "
            f"list {transform.name}` shows those that are."
        )
    return rows, [row["start"] for row in starts]


def _merge(
    warehouse: Warehouse, transform: WindowedTransform, rows: DataFrame, table: str, what: str
) -> None:
    view = f"chosen_{table}"
    rows.createOrReplaceTempView(view)
    same = " AND ".join(f"t.`{c}` <=> s.`{c}`" for c in transform.by_window)
    with translated(f"write table '{table}'"):
        warehouse.spark.sql(
            f"MERGE INTO delta.`{warehouse.path(table)}` t USING {view} s ON {same} {what}"
        ).collect()


def _struct(rows: str, columns: list[str]) -> Column:
    return F.struct(*[F.col(f"{rows}.{c}") for c in columns])
