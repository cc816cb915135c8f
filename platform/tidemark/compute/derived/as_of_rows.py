"""Compute the rows of an as-of join.

Each right row that takes part (`paired_rows`) is a *version* of its key. A left row that takes part
gets the newest version of its key that is not newer than the left row, by event time. If versions
have equal event times, the left row gets the version that arrived last.

A left row *waits* for versions that may still arrive. It belongs to the first step (its own or a
later one) after which the watermark of the right base is past the left row's event time plus the
allowed lateness. Versions that take part in later steps are newer than the left row.

Steps read the new rows of both bases, the left rows that waited for these steps, and the versions
up to the time of these left rows (`versions`). One SQL window by key, in the order of event time,
gives each left row its version.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.derived.base_rows import (
    ARRIVAL,
    CORRELATION,
    POSITION,
    STEP,
    TIME,
    read_between,
    read_new,
)
from tidemark.compute.derived.paired_rows import (
    KIND,
    finish_joined_rows,
    name_side,
    select_columns,
    select_taking_part,
)
from tidemark.compute.derived.settling import add_settling_step
from tidemark.compute.derived.versions import read_older_versions
from tidemark.define.derived.asof_join import AsOfJoin, AsOfSource
from tidemark.define.helper_columns import name_helper
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_SETTLED, _DELETED, _KEYS = map(name_helper, ("settled", "deleted", "keys"))
_LEFT = name_helper("left")
_RIGHT = name_helper("right")
"""The columns of a left row and of a version, each as a STRUCT; null in rows of the other kind."""
_OF_VERSION = ["r", f"r{ARRIVAL}", f"r{POSITION}"]


def as_of_rows(source: AsOfSource, join: AsOfJoin, logs: Sequence[Log], steps: Steps) -> DataFrame:
    left_log, right_log = logs
    watermark_before = steps.watermark_before(right_log.source.name)
    advances = steps.watermark_advances(right_log.source.name)
    start, end = _find_settling_times(join, right_log, steps)
    waiting = read_new(left_log, steps)
    taken, _ = steps.arrival_span(left_log.source.name)
    if taken >= 0 and start < end:
        waiting = waiting.unionAll(read_between(left_log, steps, -1, taken, start, end))
    settled_at = F.col(TIME) + F.lit(join.lateness)
    waiting = add_settling_step(waiting, _SETTLED, settled_at, watermark_before, advances)
    settled = {_SETTLED: F.col(_SETTLED)}
    left_rows = name_side("l", left_log.source, waiting, join.lateness, **settled)
    new_versions = name_side("r", right_log.source, read_new(right_log, steps), join.lateness)
    older_rows = read_older_versions(source, join, logs, steps, end)
    older_versions = name_side("r", right_log.source, older_rows, join.lateness)
    versions = select_taking_part("r", new_versions.unionAll(older_versions))
    paired = _pair_with_versions(join, select_taking_part("l", left_rows), versions)
    return finish_joined_rows(source, paired, {"l": left_rows, "r": new_versions})


def estimate_waiting_rows(join: AsOfJoin, logs: Sequence[Log], steps: Steps) -> int:
    """Return about how many earlier left rows have waited for these steps to get their version."""
    left, right = logs
    start, end = _find_settling_times(join, right, steps)
    taken, _ = steps.arrival_span(left.source.name)
    if taken >= 0 and start < end:
        return left.estimate_events(-1, taken, start, end)
    return 0


def _find_settling_times(join: AsOfJoin, right_log: Log, steps: Steps) -> tuple[int, int]:
    """Return the range [start, end) of event times of left rows whose wait ends in these steps."""
    base = right_log.source.name
    start = _find_settled_time(steps.watermark_before(base), join)
    end = _find_settled_time(steps.watermark_after(base), join)
    return start, end


def _find_settled_time(watermark: int | None, join: AsOfJoin) -> int:
    """Return the event time before which no left row waits for a version any more.

    Args:
        watermark: the right base's watermark, in microseconds; None is minus infinity.
    """
    if watermark is None:
        return BEGINNING
    if watermark == INFINITY:
        return INFINITY
    return max(watermark - join.lateness, BEGINNING)


def _pair_with_versions(join: AsOfJoin, left_rows: DataFrame, versions: DataFrame) -> DataFrame:
    """Return left rows with their versions, in the form that `finish_joined_rows` needs."""
    # `greatest` skips nulls, but a row that still waits belongs to no step.
    step = F.when(F.col(f"l{_SETTLED}").isNotNull(), F.greatest(f"l{STEP}", f"l{_SETTLED}"))
    left_rows = left_rows.select("*", step.alias(STEP)).where(f"{STEP} >= 0")
    has_keys = reduce(and_, (F.col(f"r.`{key}`").isNotNull() for key in join.on))
    versions = _flag_deletions(join, versions).where(has_keys)
    of_left_row = [STEP, "l", f"l{CORRELATION}"]
    of_version = [*_OF_VERSION, _DELETED]
    left_structs = _select_for_window(join, "l", left_rows, _LEFT, of_left_row)
    version_structs = _select_for_window(join, "r", versions, _RIGHT, of_version)
    both = left_structs.unionByName(version_structs, allowMissingColumns=True)
    # If event times are equal, versions come before left rows.
    order = Window.partitionBy(_KEYS).orderBy(TIME, F.col(_LEFT).isNotNull(), ARRIVAL, POSITION)
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = F.last(_RIGHT, ignorenulls=True).over(so_far)
    paired = both.select("*", newest.alias("v")).where(F.col(_LEFT).isNotNull())
    is_valid = F.coalesce(~F.col(f"v.{_DELETED}"), F.lit(True))
    columns = [
        F.col(f"{_LEFT}.*"),
        F.col(ARRIVAL).alias(f"l{ARRIVAL}"),
        F.col(POSITION).alias(f"l{POSITION}"),
    ]
    for name in _OF_VERSION:
        columns.append(F.when(is_valid, F.col(f"v.{name}")).alias(name))
    paired = paired.select(columns)
    has_version = F.col(f"r{ARRIVAL}").isNotNull()
    version_from = F.when(has_version, join.right.name)
    if join.how == "inner":
        paired = paired.where(has_version)
    return paired.select(
        STEP,
        F.lit(0).alias(KIND),
        F.concat_ws(" + ", F.lit(join.left.name), version_from).alias("read_from"),
        F.col(f"l{CORRELATION}").alias("correlation_id"),
        *select_columns(join),
    )


def _flag_deletions(join: AsOfJoin, versions: DataFrame) -> DataFrame:
    """Return versions with `_DELETED`, true for rows that only end the previous version."""
    if join.deleted is None:
        return versions.withColumn(_DELETED, F.lit(False))
    # The expression may use any name of a column of the right source, also `r`.
    columns = F.struct(versions.columns).alias(_RIGHT)
    deleted = F.expr(join.deleted).alias(_DELETED)
    return versions.select(columns, "r.*").select(f"{_RIGHT}.*", deleted)


def _select_for_window(
    join: AsOfJoin, letter: str, rows: DataFrame, name: str, facts: list[str]
) -> DataFrame:
    """Return rows of a side with the columns that the SQL window needs.

    Args:
        name: the name of the struct column with the columns `facts`.
    """
    keys = [F.col(f"{letter}.`{key}`") for key in join.on]
    return rows.select(
        F.struct(keys).alias(_KEYS),
        F.col(f"{letter}{TIME}").alias(TIME),
        F.col(f"{letter}{ARRIVAL}").alias(ARRIVAL),
        F.col(f"{letter}{POSITION}").alias(POSITION),
        F.struct(facts).alias(name),
    )
