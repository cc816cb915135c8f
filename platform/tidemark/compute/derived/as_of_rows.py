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
_LEFT, _RIGHT = name_helper("left"), name_helper("right")
"""The columns of a left row and of a version, each as a STRUCT; null in rows of the other kind."""
_OF_VERSION = ("r", f"r{ARRIVAL}", f"r{POSITION}")


def as_of_rows(source: AsOfSource, join: AsOfJoin, logs: Sequence[Log], steps: Steps) -> DataFrame:
    left, right = logs
    before = steps.watermark_before(right.source.name)
    advances = steps.watermark_advances(right.source.name)
    start, end = _find_settling_times(join, right, steps)
    waiting = read_new(left, steps)
    taken = steps.arrival_span(left.source.name)[0]
    if taken >= 0 and start < end:
        waiting = waiting.unionAll(read_between(left, steps, -1, taken, start, end))
    settled_at = F.col(TIME) + F.lit(join.lateness)
    waiting = add_settling_step(waiting, _SETTLED, settled_at, before, advances)
    sides = {
        "l": name_side("l", left.source, waiting, join.lateness, **{_SETTLED: F.col(_SETTLED)}),
        "r": name_side("r", right.source, read_new(right, steps), join.lateness),
    }
    versions = read_older_versions(source, join, logs, steps, end)
    older = name_side("r", right.source, versions, join.lateness)
    versions = select_taking_part("r", sides["r"].unionAll(older))
    return finish_joined_rows(
        source, _pair_with_versions(join, select_taking_part("l", sides["l"]), versions), sides
    )


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
    marks = steps.watermark_before(base), steps.watermark_after(base)
    return _find_settled_time(marks[0], join), _find_settled_time(marks[1], join)


def _find_settled_time(watermark: int | None, join: AsOfJoin) -> int:
    """Return the event time before which no left row waits for a version any more.

    Args:
        watermark: the right base's watermark, in microseconds; None is minus infinity.
    """
    if watermark is None or watermark == INFINITY:
        return BEGINNING if watermark is None else INFINITY
    return max(watermark - join.lateness, BEGINNING)


def _pair_with_versions(join: AsOfJoin, left: DataFrame, versions: DataFrame) -> DataFrame:
    """Return left rows with their versions, in the form that `finish_joined_rows` needs."""
    # `greatest` skips nulls, but a row that still waits belongs to no step.
    step = F.when(F.col(f"l{_SETTLED}").isNotNull(), F.greatest(f"l{STEP}", f"l{_SETTLED}"))
    left = left.select("*", step.alias(STEP)).where(f"{STEP} >= 0")
    versions = _flag_deletions(join, versions).where(
        reduce(and_, (F.col(f"r.`{key}`").isNotNull() for key in join.on))
    )
    both = _select_for_window(join, "l", left, _LEFT, STEP, "l", f"l{CORRELATION}").unionByName(
        _select_for_window(join, "r", versions, _RIGHT, *_OF_VERSION, _DELETED),
        allowMissingColumns=True,
    )
    # If event times are equal, versions come before left rows.
    order = Window.partitionBy(_KEYS).orderBy(TIME, F.col(_LEFT).isNotNull(), ARRIVAL, POSITION)
    order = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = F.last(_RIGHT, ignorenulls=True).over(order)
    paired = both.select("*", newest.alias("v")).where(F.col(_LEFT).isNotNull())
    valid = F.coalesce(~F.col(f"v.{_DELETED}"), F.lit(True))
    paired = paired.select(
        f"{_LEFT}.*",
        F.col(ARRIVAL).alias(f"l{ARRIVAL}"),
        F.col(POSITION).alias(f"l{POSITION}"),
        *(
            F.when(valid, F.col(f"v.{name}")).alias(name)
            for name in ("r", f"r{ARRIVAL}", f"r{POSITION}")
        ),
    )
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
    columns = F.struct(*versions.columns).alias(_RIGHT)
    deleted = F.expr(join.deleted).alias(_DELETED)
    return versions.select(columns, "r.*").select(f"{_RIGHT}.*", deleted)


def _select_for_window(
    join: AsOfJoin, letter: str, rows: DataFrame, name: str, *facts: str
) -> DataFrame:
    """Return rows of a side with the columns that the SQL window needs.

    Args:
        name: the name of the struct column with the columns `facts`.
    """
    return rows.select(
        F.struct(*(F.col(f"{letter}.`{key}`") for key in join.on)).alias(_KEYS),
        *(F.col(f"{letter}{column}").alias(column) for column in (TIME, ARRIVAL, POSITION)),
        F.struct(*facts).alias(name),
    )
