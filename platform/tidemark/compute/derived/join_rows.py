"""Compute the rows of a join.

A row *takes part* if its event time is valid and not before the watermark of its own base, as
recorded with the row, less the allowed lateness.

Two rows are a *pair* if both take part, their keys are equal and not null, they are in reach of
each other, and the condition is true. The pair belongs to the later of their two steps.

A row that takes part and is in no pair *has no partner*. It belongs to the first step, its own or a
later one, after which the watermark of the other base is past the end of its reach plus the allowed
lateness. No row that takes part after that can be in its reach, so it is never in a pair later.

Steps read the new rows of both bases, the older rows in reach of them, and the rows whose reach
ends in these steps. One outer join gives the pairs and the rows without a partner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.derived.base_rows import (
    ARRIVAL,
    CORRELATION,
    MARK,
    ORIGIN,
    POSITION,
    ROW,
    STEP,
    TIME,
    read_between,
)
from tidemark.compute.derived.settling import find_settling_step
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import JOINED_AT, LINEAGE, Join
from tidemark.define.helper_columns import helper
from tidemark.store.event_log.dead_letters import DEAD, dead_letter
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

LATE = "too_late"
UNDATED = "no_event_time"

_HOW = {"inner": "inner", "left": "left_outer", "full": "full_outer"}
_KIND = helper("kind")
_COLUMNS = (STEP, TIME, ARRIVAL, POSITION, ORIGIN, CORRELATION)
_Range = tuple[int, int]


@dataclass(frozen=True)
class _Side:
    """One side of a join in some steps.

    Args:
        letter: `l` or `r`.
        low, high: the bounds of the distance from its rows' event times to their partners'.
        new: the range of event times of its rows in these steps that may take part.
        settled: the range of event times of its rows whose reach may end in these steps.
    """

    letter: str
    log: Log
    low: int
    high: int
    new: _Range | None
    settled: _Range | None

    @property
    def wanted(self) -> _Range | None:
        """The event times of its partners that these steps need."""
        found = _hull(self.new, self.settled)
        return None if found is None else (found[0] + self.low, found[1] + self.high)


def join_rows(source: DerivedSource, join: Join, logs: Sequence[Log], steps: Steps) -> DataFrame:
    """Return the rows of these steps, as `compute.derived.rows` does."""
    left, right = _sides(join, logs, steps)
    rows = {
        side.letter: _prepare(side, _read(side, _hull(other.wanted, side.settled), steps), join)
        for side, other in ((left, right), (right, left))
    }
    keys = [F.col(f"l.`{key}`") == F.col(f"r.`{key}`") for key in join.on]
    near = join.reach.covers(F.col(f"l{TIME}"), F.col(f"r{TIME}"))
    given = [] if join.condition is None else [F.expr(join.condition)]
    taking = {
        side.letter: rows[side.letter].where(f"{side.letter}{DEAD} IS NULL")
        for side in (left, right)
    }
    found = taking["l"].join(taking["r"], reduce(and_, [*keys, near, *given]), _HOW[join.how])
    pair = F.col(f"l{STEP}").isNotNull() & F.col(f"r{STEP}").isNotNull()
    step = F.greatest(f"l{STEP}", f"r{STEP}")
    if join.how != "inner":
        step = F.when(pair, step).otherwise(_settle(join, steps))
    found = found.select("*", step.alias(STEP)).where(f"{STEP} >= 0")
    dead = [_select_unjoined(rows[side.letter], side, source) for side in (left, right)]
    result = reduce(DataFrame.unionByName, [_pairs(found, join), *dead])
    order = Window.partitionBy(STEP).orderBy(_KIND, *LINEAGE)
    return result.select(
        "*", (F.row_number().over(order) - 1).cast("bigint").alias("position")
    ).drop(_KIND)


def _sides(join: Join, logs: Sequence[Log], steps: Steps) -> tuple[_Side, _Side]:
    reach, found = join.reach, list[_Side]()
    bounds = ((reach.low, reach.high), (-reach.high, -reach.low))
    kept = (join.how in ("left", "full"), join.how == "full")
    for n, letter in enumerate("lr"):
        (low, high), base, other = bounds[n], logs[n].source.name, logs[1 - n].source.name
        new, settled = steps.event_times(base), None
        mark = steps.watermark_before(base)
        if new is not None and join.lateness is not None and mark is not None:
            # Earlier rows take no part.
            new = (max(new[0], mark - join.lateness), new[1])
        if kept[n] and (advances := steps.advances(other)):
            before = steps.watermark_before(other)
            lateness = join.lateness or 0
            # The reach ends at most `high` after the event time; that of a window may end at it.
            least = high if reach.exact else 0
            settled = (
                BEGINNING if before is None else before - lateness - high - 1,
                INFINITY if advances[-1][0] == INFINITY else advances[-1][0] - lateness - least,
            )
        found.append(_Side(letter, logs[n], low, high, new, settled))
    return found[0], found[1]


def _read(side: _Side, older: _Range | None, steps: Steps) -> DataFrame:
    """Return the new rows of a side, and the older ones with event times in a range."""
    before, through = steps.span(side.log.source.name)
    new = read_between(side.log, steps, before, through)
    if older is None or before < 0:
        return new
    low, high = max(older[0], BEGINNING), min(older[1] + 1, INFINITY)
    return new.unionAll(read_between(side.log, steps, -1, before, low, high))


def _prepare(side: _Side, rows: DataFrame, join: Join) -> DataFrame:
    """Return rows with the names of their side, and the reason if they take no part."""
    reason = F.when(F.col(TIME).isNull(), UNDATED)
    if join.lateness is not None:
        reason = reason.when(F.col(TIME) < F.col(MARK) - F.lit(join.lateness), LATE)
    return rows.select(
        *(F.col(c).alias(f"{side.letter}{c}") for c in _COLUMNS),
        F.col(ROW).alias(side.letter),
        F.col(MARK).alias(f"{side.letter}{MARK}"),
        reason.alias(f"{side.letter}{DEAD}"),
    )


def _settle(join: Join, steps: Steps) -> Column:
    """Return the step of a row without a partner; null if it may still get one."""
    ends = {
        "l": join.reach.left_end(F.col(f"l{TIME}")),
        "r": join.reach.right_end(F.col(f"r{TIME}")),
    }
    alone = F.lit(None).cast("int")
    for letter, partner in zip("lr", (join.right, join.left), strict=True):
        if letter == "r" and join.how != "full":
            continue
        end = ends[letter] + F.lit(join.lateness or 0)
        settled = find_settling_step(
            end, steps.watermark_before(partner.name), steps.advances(partner.name)
        )
        step = F.greatest(f"{letter}{STEP}", settled)
        # `greatest` skips nulls, but a row that has not been settled belongs to no step.
        step = F.when(settled.isNotNull(), step)
        alone = F.when(F.col(f"{letter}{STEP}").isNotNull(), step).otherwise(alone)
    return alone


def _pairs(found: DataFrame, join: Join) -> DataFrame:
    """Return pairs and rows without a partner, with the columns of the join."""
    times = [F.timestamp_micros(f"{letter}{TIME}") for letter in "lr"]
    columns = [F.coalesce(f"l.`{key}`", f"r.`{key}`").alias(key) for key in join.on]
    for letter, names in (("l", join.left_columns), ("r", join.right_columns)):
        columns += [F.col(f"{letter}.`{old}`").alias(new) for old, new in names.items()]
    if join.event_time == "latest":
        columns.append(F.greatest(*times).alias(JOINED_AT))
    of_base = [f"{letter}{column}" for letter in "lr" for column in (ARRIVAL, POSITION)]
    columns += [F.col(old).alias(new) for old, new in zip(of_base, LINEAGE, strict=True)]
    kind = F.when(F.col(f"r{STEP}").isNull(), 1).when(F.col(f"l{STEP}").isNull(), 2).otherwise(0)
    return found.select(
        STEP,
        kind.alias(_KIND),
        F.concat_ws(" + ", f"l{ORIGIN}", f"r{ORIGIN}").alias("read_from"),
        F.coalesce(f"l{CORRELATION}", f"r{CORRELATION}").alias("correlation_id"),
        *columns,
        dead_letter(F.lit(None).cast("string"), F.lit(None)),
    )


def _select_unjoined(rows: DataFrame, side: _Side, source: DerivedSource) -> DataFrame:
    """Return the new rows that take no part, as dead letters."""
    letter = side.letter
    reason = F.concat(f"{letter}{DEAD}", F.lit(f" in {side.log.source.name}"))
    lineage: dict[str, Any] = dict.fromkeys(LINEAGE, F.lit(None).cast("bigint"))
    own = LINEAGE[:2] if letter == "l" else LINEAGE[2:]
    lineage |= {own[0]: F.col(f"{letter}{ARRIVAL}"), own[1]: F.col(f"{letter}{POSITION}")}
    empty = [
        F.lit(None).cast(kind).alias(name)
        for name, kind in source.columns.items()
        if name not in LINEAGE
    ]
    return rows.where(f"{letter}{DEAD} IS NOT NULL AND {letter}{STEP} >= 0").select(
        F.col(f"{letter}{STEP}").alias(STEP),
        F.lit(3 if letter == "l" else 4).alias(_KIND),
        F.col(f"{letter}{ORIGIN}").alias("read_from"),
        F.col(f"{letter}{CORRELATION}").alias("correlation_id"),
        *empty,
        *(column.alias(name) for name, column in lineage.items()),
        dead_letter(reason, F.to_json(letter).cast("binary")),
    )


def _hull(*ranges: _Range | None) -> _Range | None:
    """Return the smallest range that contains all of the given ones."""
    found = [each for each in ranges if each is not None and each[0] <= each[1]]
    return (min(a for a, _ in found), max(b for _, b in found)) if found else None
