"""Compute the rows of a join.

Two rows are a *pair* if both take part (`paired_rows`), their keys are equal and not null, each is
in the other's reach, and the condition is true. The *reach* of a row is the range of event times
that `within` allows for its partner. The pair belongs to the later of their two steps.

A row that takes part and is in no pair *has no partner*. The row belongs to the first step (its own
or a later one) after which the watermark of the other base is past the end of the row's reach plus
the allowed lateness. No row that takes part after that step can be in this reach, so the row never
gets a partner later.

Steps read the new rows of both bases, the older rows in reach of the new ones, and the rows whose
reach ends in these steps. One outer join gives the pairs and the rows without a partner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.derived.base_rows import (
    CORRELATION,
    STEP,
    TIME,
    read_between,
)
from tidemark.compute.derived.paired_rows import (
    KIND,
    finish_joined_rows,
    name_side,
    select_columns,
    select_taking_part,
)
from tidemark.compute.derived.settling import add_settling_step
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import JOINED_AT, Join
from tidemark.define.helper_columns import name_helper
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_HOW = {"inner": "inner", "left": "left_outer", "full": "full_outer"}
_SETTLED = name_helper("settled")
_ALONE = name_helper("alone")
"""The step after which a row can't get a partner any more, and the step to which a row without a
partner belongs.

The second is null if the row may still get a partner, or if the join leaves out rows without one.
"""
_Range = tuple[int, int]
"""The first and the last instant of a range, in microseconds."""


@dataclass(frozen=True)
class _Side:
    """One side of a join, for the steps of the derived source that are being computed.

    Args:
        letter: `l` or `r`.
        low, high: the smallest and the greatest difference, in microseconds, between the event time
            of a partner and that of this side's row; negative if the partner is earlier.
        new: the range of event times of this side's new rows that may take part; None if these
            steps have no new rows of this side.
        settled: the range of event times of this side's rows whose wait for a partner may end in
            these steps. None if no wait can end, or if the join leaves out this side's rows without
            a partner.
        partner: the name of the other base.
        keeps_unpaired: true if this side's rows without a partner are rows of the join.
    """

    letter: str
    log: Log
    low: int
    high: int
    new: _Range | None
    settled: _Range | None
    partner: str
    keeps_unpaired: bool

    @property
    def partner_times(self) -> _Range | None:
        """The range of the possible event times of the partners; None if no row needs a partner."""
        event_times = _enclose_ranges(self.new, self.settled)
        if event_times is None:
            return None
        return (event_times[0] + self.low, event_times[1] + self.high)


def join_rows(source: DerivedSource, join: Join, logs: Sequence[Log], steps: Steps) -> DataFrame:
    left_side, right_side = _describe_sides(join, logs, steps)
    rows: dict[str, DataFrame] = {}
    for side, partner in ((left_side, right_side), (right_side, left_side)):
        older_times = _enclose_ranges(partner.partner_times, side.settled)
        side_rows = _read_side(side, older_times, steps)
        rows[side.letter] = _prepare_side(side, side_rows, join, steps)
    conditions = [F.col(f"l.`{key}`") == F.col(f"r.`{key}`") for key in join.on]
    conditions.append(join.reach.can_pair(F.col(f"l{TIME}"), F.col(f"r{TIME}")))
    if join.condition is not None:
        conditions.append(F.expr(join.condition))
    left_rows = select_taking_part("l", rows["l"])
    right_rows = select_taking_part("r", rows["r"])
    joined = left_rows.join(right_rows, reduce(and_, conditions), _HOW[join.how])
    is_pair = F.col(f"l{STEP}").isNotNull() & F.col(f"r{STEP}").isNotNull()
    step = F.greatest(f"l{STEP}", f"r{STEP}")
    if join.how != "inner":
        step = F.when(is_pair, step).otherwise(F.coalesce(f"l{_ALONE}", f"r{_ALONE}"))
    joined = joined.select("*", step.alias(STEP)).where(f"{STEP} >= 0")
    return finish_joined_rows(source, _select_pairs(joined, join), rows)


def join_settles(join: Join, logs: Sequence[Log], steps: Steps) -> bool:
    """Return whether the wait of an earlier row for a partner may end in these steps."""
    sides = _describe_sides(join, logs, steps)
    return any(_estimate_older(side, side.settled, steps) > 0 for side in sides)


def estimate_older_rows(join: Join, logs: Sequence[Log], steps: Steps) -> int:
    """Return about how many earlier rows these steps read."""
    left_side, right_side = _describe_sides(join, logs, steps)
    estimate = 0
    for side, partner in ((left_side, right_side), (right_side, left_side)):
        older_times = _enclose_ranges(partner.partner_times, side.settled)
        estimate += _estimate_older(side, older_times, steps)
    return estimate


def _describe_sides(join: Join, logs: Sequence[Log], steps: Steps) -> tuple[_Side, _Side]:
    left_log, right_log = logs
    left_side = _describe_side(join, "l", left_log, right_log.source.name, steps)
    right_side = _describe_side(join, "r", right_log, left_log.source.name, steps)
    return left_side, right_side


def _describe_side(join: Join, letter: str, log: Log, partner: str, steps: Steps) -> _Side:
    if letter == "l":
        low = join.reach.low
        high = join.reach.high
        keeps_unpaired = join.how in ("left", "full")
    else:
        low = -join.reach.high
        high = -join.reach.low
        keeps_unpaired = join.how == "full"
    new = _find_new_times(join, log, steps)
    settled = None
    if keeps_unpaired:
        settled = _find_settled_times(join, partner, high, steps)
    return _Side(letter, log, low, high, new, settled, partner, keeps_unpaired)


def _find_new_times(join: Join, log: Log, steps: Steps) -> _Range | None:
    """Return the range of event times of a base's new rows that may take part, or None."""
    new = steps.event_times(log.source.name)
    watermark = steps.watermark_before(log.source.name)
    if new is None or join.lateness is None or watermark is None:
        return new
    # Rows with earlier event times take no part.
    return (max(new[0], watermark - join.lateness), new[1])


def _find_settled_times(join: Join, partner: str, high: int, steps: Steps) -> _Range | None:
    """Return the range of event times of rows whose wait for a partner may end in these steps.

    Return None if no wait can end.

    Args:
        partner: the name of the partner's base.
        high: as in `_Side`.
    """
    advances = steps.watermark_advances(partner)
    if not advances:
        return None
    lateness = join.lateness or 0
    watermark_before = steps.watermark_before(partner)
    first = BEGINNING
    if watermark_before is not None:
        first = watermark_before - lateness - high - 1
    last, _ = advances[-1]
    if last != INFINITY:
        last -= lateness
        # A reach ends at most `high` after the row's event time. The reach of a window may already
        # end at the event time.
        if join.reach.exact:
            last -= high
    return (first, last)


def _read_side(side: _Side, older: _Range | None, steps: Steps) -> DataFrame:
    """Return the new rows of a side, and the older ones with event times in a range."""
    arrival_before, through = steps.arrival_span(side.log.source.name)
    new = read_between(side.log, steps, arrival_before, through)
    if older is None or arrival_before < 0:
        return new
    low = max(older[0], BEGINNING)
    high = min(older[1] + 1, INFINITY)
    return new.unionAll(read_between(side.log, steps, -1, arrival_before, low, high))


def _estimate_older(side: _Side, older: _Range | None, steps: Steps) -> int:
    """Return about how many rows before these steps have event times in a range."""
    arrival_before, _ = steps.arrival_span(side.log.source.name)
    if older is None or older[0] > older[1] or arrival_before < 0:
        return 0
    return side.log.estimate_events(-1, arrival_before, older[0], older[1] + 1)


def _prepare_side(side: _Side, rows: DataFrame, join: Join, steps: Steps) -> DataFrame:
    """Return rows with the column names of their side, and the reason if they take no part."""
    alone = F.lit(None).cast("int")
    if side.keeps_unpaired:
        reaches = join.reach.left_end if side.letter == "l" else join.reach.right_end
        end = reaches(F.col(TIME)) + F.lit(join.lateness or 0)
        watermark_before = steps.watermark_before(side.partner)
        advances = steps.watermark_advances(side.partner)
        rows = add_settling_step(rows, _SETTLED, end, watermark_before, advances)
        # `greatest` skips nulls, but a row that has not been settled belongs to no step.
        alone = F.when(F.col(_SETTLED).isNotNull(), F.greatest(STEP, _SETTLED))
    return name_side(side.letter, side.log.source, rows, join.lateness, **{_ALONE: alone})


def _select_pairs(joined: DataFrame, join: Join) -> DataFrame:
    """Return pairs and rows without a partner, with the columns of the join."""
    has_left = F.col(f"l{STEP}").isNotNull()
    has_right = F.col(f"r{STEP}").isNotNull()
    left_base, right_base = join.base_sources
    left_origin = F.when(has_left, left_base.name)
    right_origin = F.when(has_right, right_base.name)
    kind = F.when(~has_right, 1).when(~has_left, 2).otherwise(0)
    # Every left row has a correlation id. So the right row's is needed only in a full join.
    correlation = F.col(f"l{CORRELATION}")
    if join.how == "full":
        correlation = F.coalesce(correlation, f"r{CORRELATION}")
    columns = [
        F.col(STEP),
        kind.alias(KIND),
        F.concat_ws(" + ", left_origin, right_origin).alias("read_from"),
        correlation.alias("correlation_id"),
    ]
    columns += select_columns(join)
    if join.event_time == "latest":
        left_time = F.timestamp_micros(f"l{TIME}")
        right_time = F.timestamp_micros(f"r{TIME}")
        columns.append(F.greatest(left_time, right_time).alias(JOINED_AT))
    return joined.select(columns)


def _enclose_ranges(*ranges: _Range | None) -> _Range | None:
    """Return the smallest range that contains all of the given ones."""
    starts: list[int] = []
    ends: list[int] = []
    for candidate in ranges:
        if candidate is not None and candidate[0] <= candidate[1]:
            starts.append(candidate[0])
            ends.append(candidate[1])
    if not starts:
        return None
    return (min(starts), max(ends))
