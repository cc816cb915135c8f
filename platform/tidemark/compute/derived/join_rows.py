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
_SETTLED, _ALONE = map(name_helper, ("settled", "alone"))
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
    left, right = _describe_sides(join, logs, steps)
    rows = {
        side.letter: _prepare_side(
            side,
            _read_side(side, _enclose_ranges(partner.partner_times, side.settled), steps),
            join,
            steps,
        )
        for side, partner in ((left, right), (right, left))
    }
    keys = [F.col(f"l.`{key}`") == F.col(f"r.`{key}`") for key in join.on]
    near = join.reach.can_pair(F.col(f"l{TIME}"), F.col(f"r{TIME}"))
    conditions = [] if join.condition is None else [F.expr(join.condition)]
    joinable = [select_taking_part(letter, side) for letter, side in rows.items()]
    joined = joinable[0].join(joinable[1], reduce(and_, [*keys, near, *conditions]), _HOW[join.how])
    pair = F.col(f"l{STEP}").isNotNull() & F.col(f"r{STEP}").isNotNull()
    step = F.greatest(f"l{STEP}", f"r{STEP}")
    if join.how != "inner":
        step = F.when(pair, step).otherwise(F.coalesce(f"l{_ALONE}", f"r{_ALONE}"))
    joined = joined.select("*", step.alias(STEP)).where(f"{STEP} >= 0")
    return finish_joined_rows(source, _select_pairs(joined, join), rows)


def join_settles(join: Join, logs: Sequence[Log], steps: Steps) -> bool:
    """Return whether the wait of an earlier row for a partner may end in these steps."""
    return any(
        _estimate_older(side, side.settled, steps) > 0
        for side in _describe_sides(join, logs, steps)
    )


def estimate_older_rows(join: Join, logs: Sequence[Log], steps: Steps) -> int:
    """Return about how many earlier rows these steps read."""
    left, right = _describe_sides(join, logs, steps)
    return sum(
        _estimate_older(side, _enclose_ranges(partner.partner_times, side.settled), steps)
        for side, partner in ((left, right), (right, left))
    )


def _describe_sides(join: Join, logs: Sequence[Log], steps: Steps) -> tuple[_Side, _Side]:
    reach = join.reach
    bounds = ((reach.low, reach.high), (-reach.high, -reach.low))
    sides: list[_Side] = []
    keeps_unpaired = (join.how in ("left", "full"), join.how == "full")
    for index, letter in enumerate("lr"):
        low, high = bounds[index]
        base = logs[index].source.name
        partner = logs[1 - index].source.name
        new = steps.event_times(base)
        settled = None
        watermark = steps.watermark_before(base)
        if new is not None and join.lateness is not None and watermark is not None:
            # Rows with earlier event times take no part.
            new = (max(new[0], watermark - join.lateness), new[1])
        if keeps_unpaired[index] and (advances := steps.watermark_advances(partner)):
            before = steps.watermark_before(partner)
            lateness = join.lateness or 0
            # A reach ends at most `high` after the row's event time. The reach of a window may
            # already end at the event time.
            shortest_reach = high if reach.exact else 0
            first = BEGINNING
            if before is not None:
                first = before - lateness - high - 1
            last = advances[-1][0]
            if last != INFINITY:
                last -= lateness + shortest_reach
            settled = (first, last)
        sides.append(
            _Side(letter, logs[index], low, high, new, settled, partner, keeps_unpaired[index])
        )
    return sides[0], sides[1]


def _read_side(side: _Side, older: _Range | None, steps: Steps) -> DataFrame:
    """Return the new rows of a side, and the older ones with event times in a range."""
    before, through = steps.arrival_span(side.log.source.name)
    new = read_between(side.log, steps, before, through)
    if older is None or before < 0:
        return new
    low = max(older[0], BEGINNING)
    high = min(older[1] + 1, INFINITY)
    return new.unionAll(read_between(side.log, steps, -1, before, low, high))


def _estimate_older(side: _Side, older: _Range | None, steps: Steps) -> int:
    """Return about how many rows before these steps have event times in a range."""
    before, _ = steps.arrival_span(side.log.source.name)
    if older is None or older[0] > older[1] or before < 0:
        return 0
    return side.log.estimate_events(-1, before, older[0], older[1] + 1)


def _prepare_side(side: _Side, rows: DataFrame, join: Join, steps: Steps) -> DataFrame:
    """Return rows with the column names of their side, and the reason if they take no part."""
    alone = F.lit(None).cast("int")
    if side.keeps_unpaired:
        reaches = join.reach.left_end if side.letter == "l" else join.reach.right_end
        end = reaches(F.col(TIME)) + F.lit(join.lateness or 0)
        before = steps.watermark_before(side.partner)
        advances = steps.watermark_advances(side.partner)
        rows = add_settling_step(rows, _SETTLED, end, before, advances)
        # `greatest` skips nulls, but a row that has not been settled belongs to no step.
        alone = F.when(F.col(_SETTLED).isNotNull(), F.greatest(STEP, _SETTLED))
    return name_side(side.letter, side.log.source, rows, join.lateness, **{_ALONE: alone})


def _select_pairs(joined: DataFrame, join: Join) -> DataFrame:
    """Return pairs and rows without a partner, with the columns of the join."""
    columns = select_columns(join)
    if join.event_time == "latest":
        times = [F.timestamp_micros(f"{letter}{TIME}") for letter in "lr"]
        columns.append(F.greatest(*times).alias(JOINED_AT))
    origins = [
        F.when(F.col(f"{letter}{STEP}").isNotNull(), base.name)
        for letter, base in zip("lr", join.base_sources, strict=True)
    ]
    kind = F.when(F.col(f"r{STEP}").isNull(), 1).when(F.col(f"l{STEP}").isNull(), 2).otherwise(0)
    return joined.select(
        STEP,
        kind.alias(KIND),
        F.concat_ws(" + ", *origins).alias("read_from"),
        # Every left row has a correlation id. So the right row's is needed only in a full join.
        F.coalesce(
            *(f"{letter}{CORRELATION}" for letter in ("lr" if join.how == "full" else "l"))
        ).alias("correlation_id"),
        *columns,
    )


def _enclose_ranges(*ranges: _Range | None) -> _Range | None:
    """Return the smallest range that contains all of the given ones."""
    nonempty = [
        candidate for candidate in ranges if candidate is not None and candidate[0] <= candidate[1]
    ]
    if nonempty:
        return (min(a for a, _ in nonempty), max(b for _, b in nonempty))
    return None
