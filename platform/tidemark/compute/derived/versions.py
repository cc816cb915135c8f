"""Keep the newest version of each key, so that an as-of join does not read all earlier ones.

The *versions table* of an as-of join has, for a *mark*, the newest version of each key with an
event time before the mark. When many newer versions have arrived, the table is replaced by a table
for a later mark. The new mark is chosen so that all versions before it have arrived, and that no
left row before it still waits for a version. The table is a function of the right base's event log
and of the mark. It therefore does not matter when the table is replaced, or whether it exists:
without the table, all versions are read.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.instants import BEGINNING, earliest_watermark
from tidemark.compute.derived.base_rows import (
    ARRIVAL,
    CORRELATION,
    MARK,
    POSITION,
    ROW,
    STEP,
    TIME,
    read_between,
)
from tidemark.compute.derived.paired_rows import explain_absence
from tidemark.define.derived.asof_join import AsOfJoin, AsOfSource
from tidemark.engine.queries.planning import Planning
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_APP = "tidemark versions"


def read_older_versions(
    source: AsOfSource, join: AsOfJoin, logs: Sequence[Log], steps: Steps, end: int
) -> DataFrame:
    """Return the right rows of earlier steps that the left rows of these steps may need.

    Args:
        end: an instant in microseconds; all event times of the left rows are before it.

    Returns:
        Rows as `base_rows` reads them.
    """
    right = logs[1]
    read_through, _ = steps.arrival_span(right.source.name)
    mark = _read_mark(source, right)
    settled_time = _find_settled_time(
        join, [steps.watermark_before(base.name) for base in join.base_sources]
    )
    if mark is None or settled_time is None or mark > settled_time:
        return read_between(right, steps, -1, read_through, None, end)
    newer = read_between(right, steps, -1, read_through, mark, max(mark, end))
    return newer.unionByName(_read_versions(source, right))


def keep_versions(source: AsOfSource, join: AsOfJoin, logs: Sequence[Log], steps: Steps) -> None:
    """Replace the versions table by one for a later mark if later steps can then skip many rows.

    Args:
        steps: the steps whose rows have just been computed.
    """
    right = logs[1]
    _, taken = steps.arrival_span(right.source.name)
    mark = _find_settled_time(
        join, [steps.watermark_after(base.name) for base in join.base_sources]
    )
    before = _read_mark(source, right)
    if mark is None or (before is not None and mark <= before):
        return
    warehouse = right.warehouse
    table = source.versions_table
    erasures = right.read_epoch()
    stored = 0 if before is None else warehouse.max_row_count(table)
    arrived = right.estimate_events(-1, taken, BEGINNING if before is None else before, mark)
    if arrived <= max(thresholds.SMALL_BATCH_ROWS, stored):
        return
    versions = read_between(right, steps, -1, taken, before, mark)
    versions = versions.where(explain_absence(right.source, join.lateness).isNull())
    if before is not None:
        versions = versions.unionByName(_read_versions(source, right))
    keys = [F.col(f"{ROW}.`{key}`") for key in join.on]
    version = F.struct(ARRIVAL, POSITION, TIME, ROW)
    newest_version = F.max_by(version, F.struct(TIME, ARRIVAL, POSITION))
    newest = versions.groupBy(keys).agg(newest_version.alias("newest"))
    rows = newest.select(
        F.lit(mark).cast("bigint").alias("mark"),
        F.col(f"newest.{ARRIVAL}").alias("arrival"),
        F.col(f"newest.{POSITION}").alias("position"),
        F.col(f"newest.{TIME}").alias("event_time"),
        F.col(f"newest.{ROW}").alias("version"),
    )
    warehouse.ensure_table(
        table, rows, f"The newest versions of {right.source.name} for {source.name}."
    )
    if right.read_epoch() != erasures:
        # The rows may have erased events. An erasure before the creation has not found the table.
        return
    with warehouse.use_planning(Planning.MANY):
        warehouse.replace_rows(
            rows, table, "TRUE", _APP, sum(steps.steps[-1].taken_arrivals.values())
        )


def _find_settled_time(join: AsOfJoin, watermarks: Sequence[int | None]) -> int | None:
    """Return the event time before which no left row waits any more, and no version can arrive.

    Return None if a watermark is None.
    """
    watermark = earliest_watermark(watermarks)
    if watermark is None:
        return None
    return max(watermark - join.lateness, BEGINNING)


def _read_mark(source: AsOfSource, log: Log) -> int | None:
    """Return the mark of the versions table: the event time before which it covers all versions.

    Return None if the table does not exist.
    """
    table = source.versions_table
    warehouse = log.warehouse
    if warehouse.has_table(table):
        return warehouse.max_value(table, "mark")
    return None


def _read_versions(source: AsOfSource, log: Log) -> DataFrame:
    """Return the rows of the versions table as `base_rows` reads them."""
    rows = log.warehouse.read_frame(source.versions_table)
    null = F.lit(None)
    return rows.select(
        F.lit(-1).alias(STEP),
        F.col("version").alias(ROW),
        F.col("event_time").alias(TIME),
        null.cast("bigint").alias(MARK),
        F.col("arrival").alias(ARRIVAL),
        F.col("position").alias(POSITION),
        null.cast("string").alias(CORRELATION),
    )
