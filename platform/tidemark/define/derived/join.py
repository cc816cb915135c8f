"""Joins: pairs of events of two sources with equal keys that are close in event time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments, checked_class
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import checked_duration, format_duration, parse_duration
from tidemark.define.derived.derived_source import (
    INSTANT,
    NUMBER,
    DerivedSource,
    Lineage,
    WatermarkOfBases,
    check_idle,
)
from tidemark.define.derived.pairing import (
    LINEAGE,
    SIDES,
    Pairing,
    check_keys,
    paired_columns,
)
from tidemark.define.source import Source
from tidemark.define.windows import Tumbling, Window
from tidemark.define.windows.kind import floor_to

_How = Literal["inner", "left", "full"]
_EventTime = Literal["latest", "left"]
JOINED_AT = "joined_at"
"""The column with the event time of a join with `event_time="latest"`."""


@checked_class
@dataclass(frozen=True, init=False)
class Between:
    """The range of event times of the right rows, relative to the event time of the left row.

    Both ends are included.

    Example:
        Between("-5 minutes", "1 hour")  # from 5 minutes before the left row to 1 hour after it

    Args:
        start: the smallest allowed difference: the right row's event time minus the left row's.
        end: the greatest allowed difference.

    Raises:
        DefinitionError: the end is before the start, or a text is not a length of time.
    """

    low: int
    high: int

    exact = True

    def __init__(self, start: str | timedelta, end: str | timedelta) -> None:
        object.__setattr__(self, "low", parse_duration(start))
        object.__setattr__(self, "high", parse_duration(end))
        if self.high < self.low:
            raise DefinitionError(
                f"Between({start!r}, {end!r}) is empty: it ends before it begins. Exchange the "
                "two; both are relative to the left row's event time."
            )

    def __str__(self) -> str:
        return (
            f"from {format_duration(self.low)} to {format_duration(self.high)} after the left row"
        )

    def can_pair(self, left_time: Column, right_time: Column) -> Column:
        """Return whether rows with these event times, BIGINT microseconds, can be a pair."""
        return (right_time >= left_time + F.lit(self.low)) & (
            right_time <= left_time + F.lit(self.high)
        )

    def left_end(self, time: Column) -> Column:
        """Return the latest event time at which a right row can pair with a given left row.

        Args:
            time: the left row's event time, BIGINT microseconds, like the result.
        """
        return time + F.lit(self.high)

    def right_end(self, time: Column) -> Column:
        """Return the latest event time at which a left row can pair with a given right row.

        Args:
            time: the right row's event time, BIGINT microseconds, like the result.
        """
        return time - F.lit(self.low)


@dataclass(frozen=True)
class _SameWindow:
    """The reach of a join whose pairs are in the same tumbling window."""

    window: Tumbling

    exact = False

    @property
    def low(self) -> int:
        return -self.high

    @property
    def high(self) -> int:
        return self.window.size - 1

    def __str__(self) -> str:
        return f"within the same window ({self.window})"

    def can_pair(self, left_time: Column, right_time: Column) -> Column:
        return self._window_start(left_time) == self._window_start(right_time)

    def left_end(self, time: Column) -> Column:
        return self._window_start(time) + F.lit(self.high)

    def right_end(self, time: Column) -> Column:
        return self._window_start(time) + F.lit(self.high)

    def _window_start(self, time: Column) -> Column:
        return floor_to(time, self.window.size, self.window.offset)


@dataclass(frozen=True)
class Join(Pairing):
    """The derivation of a join: which rows of its two sources form a pair.

    Args:
        reach: which event times can pair. `low` and `high` bound the right row's event time minus
            the left row's, in microseconds. If `exact`, all differences within these bounds are
            allowed; otherwise only some.
        how: which rows without a partner are rows of the join: none (`inner`), left rows, or the
            rows of both sides (`full`).
        lateness: how far a row may be behind the watermark of its own base and still take part, in
            microseconds; None if all rows take part.
        condition: a further condition, in SQL over the structs `l` and `r`, the left and the right
            row; None without a further condition.
        event_time: the event time of a pair: the later of the two, or the left row's.
    """

    reach: Between | _SameWindow
    how: _How
    lateness: int | None
    condition: str | None
    event_time: _EventTime

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        return self.on, self.reach, self.how, self.lateness, self.condition, self.event_time

    @property
    def sql_expressions(self) -> Mapping[str, str]:
        if self.condition is None:
            return {}
        return {"where": self.condition}

    @property
    def added_columns(self) -> tuple[str, ...]:
        return tuple(_added_columns(self.event_time))

    @property
    def lineage_columns(self) -> tuple[Lineage, ...]:
        return SIDES

    @property
    def look_back(self) -> tuple[int, ...]:
        """The lag of the join's watermark behind the left and the right one, in microseconds.

        A row of the join may have an event time that is earlier than the watermark of a base. With
        this lag, the row is nevertheless on time.
        """
        reach_before = max(-self.reach.low, 0)
        reach_after = max(self.reach.high, 0)
        if self.how == "inner":
            if self.event_time == "latest":
                return (0, 0)
            return (0, reach_after)
        lateness = self.lateness or 0
        if self.how == "left":
            return (0, reach_after + lateness)
        return (reach_before + lateness, reach_after + lateness)


@check_arguments
def join(
    *,
    name: str,
    left: Source,
    right: Source,
    on: Sequence[str],
    within: Between | Window,
    how: str = "inner",
    allowed_lateness: str | timedelta | None = None,
    where: Sql | None = None,
    rename: Mapping[str, str] | None = None,
    event_time: str = "latest",
    idle: str | timedelta | None = None,
) -> DerivedSource:
    """Return a source whose rows are pairs of matching events of two sources.

    Two events are a pair if their keys are equal and not null, their event times are as close as
    `within` requires, and the condition `where` is true. The pairs do not depend on how the
    arrivals are cut into runs: a batch over complete logs gives the same rows.

    Example:
        orders, payments = (
            Source(
                name=name,
                columns={"at": "TIMESTAMP", "order_id": "STRING", "amount": "BIGINT"},
                event_time="at",
                watermark=BoundedOutOfOrderness("10 minutes"),
            )
            for name in ("orders", "payments")
        )
        paid_orders = join(
            name="paid_orders",
            left=orders,
            right=payments,
            on=["order_id"],
            within=Between("-5 minutes", "1 hour"),
            how="left",
            rename={"payments.at": "paid_at", "payments.amount": "paid"},
        )

    Args:
        name: the name of the join, with the same rules as for any source.
        left, right: the sources to join, which may be derived sources.
        on: the columns with the keys; each must have the same type in both sources.
        within: a `Between`, or a `Tumbling` window that must contain both events.
        how: "inner" gives only pairs. "left" also gives left events without a partner, once no
            partner can arrive any more; their right columns are null. "full" gives the events
            without a partner of both sides. An event that was given without a partner never becomes
            part of a pair.
        allowed_lateness: how far an event may be behind the watermark of its own source and still
            take part. The default is any distance in an inner join, and zero in the others. Events
            that take no part are in the table `<name>_unjoined`.
        where: a further condition, in SQL over the rows `l` and `r`, as in `"l.amount <= r.limit"`.
        rename: new names for columns, as in the example. Columns that both sources have need one.
        event_time: the event time of a pair: "latest" for the later of the two event times, in the
            column `joined_at`; "left" for the left event's, in the column that the left source has.
        idle: how long one source must be silent before it no longer holds back the other, such as
            "10 minutes". It needs `Source(heartbeat=...)`. From the first heartbeat after this
            time, the silent source counts as complete up to the watermark of the other. Events
            that it sends later are late if they are before that watermark.

    Raises:
        DefinitionError: an argument is not valid; the message says why.
    """
    if how not in get_args(_How):
        raise _join_error(name, f"how must be 'inner', 'left' or 'full' (got '{how}')")
    if event_time not in get_args(_EventTime):
        raise _join_error(name, f"event_time must be 'latest' or 'left' (got '{event_time}')")
    if how == "full" and event_time == "left":
        raise _join_error(
            name,
            "a full join also has rows without a left event, so its event time can't be the left "
            'one\'s. Use event_time="latest"',
        )
    if isinstance(within, Between):
        reach = within
    elif isinstance(within, Tumbling):
        reach = _SameWindow(within)
    else:
        raise _join_error(
            name,
            f"within must be Between(start, end) or a Tumbling window (got {within}). For other "
            "windows, aggregate a union of the two sources",
        )
    keys = check_keys(f"Join '{name}'", left, right, on)
    if allowed_lateness is None:
        lateness = None
    else:
        lateness = checked_duration(f"Join '{name}': allowed_lateness", allowed_lateness, zero=True)
    if how != "inner" and lateness is None:
        lateness = 0
    added = _added_columns(event_time)
    columns, left_columns, right_columns = paired_columns(
        name, left, right, keys, rename or {}, added
    )
    if event_time == "latest":
        time = JOINED_AT
    else:
        time = left_columns.get(left.event_time, left.event_time)
    return DerivedSource(
        name=name,
        columns=columns,
        event_time=time,
        watermark=WatermarkOfBases(),
        idle=check_idle(name, idle, (left, right)),
        derivation=Join(
            left=left,
            right=right,
            on=keys,
            reach=reach,
            how=how,  # pyright: ignore[reportArgumentType]  (checked above)
            lateness=lateness,
            condition=where,
            left_columns=left_columns,
            right_columns=right_columns,
            event_time=event_time,  # pyright: ignore[reportArgumentType]  (checked above)
        ),
    )


def _added_columns(event_time: str) -> dict[str, str]:
    lineage: dict[str, str] = dict.fromkeys(LINEAGE, NUMBER)
    if event_time == "latest":
        return {JOINED_AT: INSTANT} | lineage
    return lineage


def _join_error(name: str, why: str) -> DefinitionError:
    return DefinitionError(f"Join '{name}': {why}.")
