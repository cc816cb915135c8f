"""Firings, which a trigger may combine, and the slots into which they divide a window's events.

Every event of a window joins a *slot*, the unit that fires as a whole or not at all. The slot
depends on the event's own row, and for `Count` on the number of earlier events. An event therefore
joins the same slot however the arrivals are divided into runs. Whether a slot has fired as of an
arrival follows from its events, and from the watermark and the clock that the timeline has for that
arrival.

| firing | the slot of an event | the slot has fired |
| --- | --- | --- |
| `Never()` | 0 | never on its own |
| `EachArrival()` | arrival + 1; but 0 if early and the arrival closes the window | at once |
| `Count(n)` | 1 for the window's first n events, 2 for the next n, … | when it has n events |
| `Every(i)` | the first multiple of i after its arrival (microseconds) | when the clock is at it |
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import checked_duration, format_duration
from tidemark.define.helper_columns import SLOT, name_helper

RANK = name_helper("rank")
"""The column with an event's rank, from 1, among the on-time or the late events of its window."""

_Ticks = Callable[[int], DataFrame]
"""A function that takes an interval in microseconds and returns the multiples that the clock has
reached.

Each row has `tick`, the `arrival` at which the clock had reached it, and the `watermark` before
that arrival, all BIGINT.
"""


@dataclass(frozen=True)
class Side:
    """The early or the late firings of some windows.

    Args:
        name: `early` or `late`.
        until: the watermark from which the trigger no longer fires slots, BIGINT microseconds. For
            early firings it is the window's end, for late ones the end plus the allowed lateness.
        arrival: the arrival as of which the firings are determined, BIGINT.
        slots: a window specification of Spark that groups the partials of a slot.
    """

    name: str
    until: Column
    arrival: Column
    slots: WindowSpec


@dataclass(frozen=True)
class Firing:
    """The base class of firings: it determines the slot of an event, and when a slot fires."""

    needs_rank: ClassVar[bool] = False
    """True if an event's slot depends on the number of events before it."""

    by_arrival: ClassVar[bool] = False
    """True if each arrival with events fires their windows."""

    @property
    def clock_interval(self) -> int | None:
        """The firing's interval on the processing clock, in microseconds; None if it has none."""
        return None

    def is_full(self, pending: int) -> bool:
        """Return whether a window fires with this number of pending events."""
        return False

    def event_slot(self) -> Column:
        """Return the slot of an event, BIGINT."""
        raise NotImplementedError

    def find_firing_arrival(
        self, stored: DataFrame, side: Side, ticks: _Ticks
    ) -> tuple[DataFrame, Column]:
        """Determine at which arrival the trigger fired the slot of each stored partial.

        Returns:
            The partials, possibly with further columns; and a column over them with the arrival. It
            is null if the trigger has not fired the slot, even if the watermark has.
        """
        raise NotImplementedError


@checked_class
@dataclass(frozen=True)
class Never(Firing):
    """No firing. On-time events wait for the ON_TIME firing, late ones until the window is final.

    Example:
        Trigger(late=Never())  # all late events of a window together, when it becomes final
    """

    def __str__(self) -> str:
        return "never"

    def event_slot(self) -> Column:
        return F.lit(0)

    def find_firing_arrival(
        self, stored: DataFrame, side: Side, ticks: _Ticks
    ) -> tuple[DataFrame, Column]:
        return stored, F.lit(None).cast("bigint")


@checked_class
@dataclass(frozen=True)
class EachArrival(Firing):
    """A firing after each arrival that brings events.

    The arrival whose watermark closes the window fires it ON_TIME, not EARLY.

    Example:
        Trigger(early=EachArrival())
    """

    by_arrival = True

    def __str__(self) -> str:
        return "each arrival"

    def event_slot(self) -> Column:
        return F.col("arrival") + 1

    def find_firing_arrival(
        self, stored: DataFrame, side: Side, ticks: _Ticks
    ) -> tuple[DataFrame, Column]:
        # An early slot of 0 belongs to the arrival that closed the window: it waits for the ON_TIME
        # firing.
        return stored, F.when(F.col(SLOT) > 0, F.col(SLOT) - 1)


@checked_class
@dataclass(frozen=True)
class Count(Firing):
    """A firing after every `n` events of a window and key; late events are counted separately.

    Events are counted in the order (arrival, position). One arrival may therefore fire a window
    more than once, and the same events fire together in every run.

    Example:
        Trigger(early=Count(100))

    Args:
        n: the number of events, 1 or more.

    Raises:
        DefinitionError: `n` is less than 1.
    """

    n: int

    needs_rank = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise DefinitionError(f"Count: `n` must be 1 or more (got {self.n}).")

    def __str__(self) -> str:
        return f"every {format_count(self.n, 'event')}"

    def is_full(self, pending: int) -> bool:
        return pending >= self.n

    def event_slot(self) -> Column:
        return F.floor((F.col(RANK) - 1) / self.n) + 1

    def find_firing_arrival(
        self, stored: DataFrame, side: Side, ticks: _Ticks
    ) -> tuple[DataFrame, Column]:
        is_full = F.sum("events").over(side.slots) == self.n
        return stored, F.when(is_full, F.max("last_arrival").over(side.slots))


@checked_class
@dataclass(frozen=True, init=False)
class Every(Firing):
    """A firing at multiples of an interval on the processing clock, counted from 1970.

    Only arrivals move the clock. With an interval of one minute, an event that arrives at 10:00:20
    waits for 10:01:00, and fires with the first arrival at or after that time.

    Example:
        Trigger(early=Every("1 minute"))  # with the first arrival of each minute

    Args:
        interval: a number and a unit from microseconds to weeks, greater than zero.

    Raises:
        DefinitionError: the interval is not greater than zero, or is not a length of time.
    """

    interval: int

    def __init__(self, interval: str | timedelta) -> None:
        length = checked_duration("The interval of a trigger", interval)
        object.__setattr__(self, "interval", length)

    def __str__(self) -> str:
        return f"every {format_duration(self.interval)}"

    @property
    def clock_interval(self) -> int:
        return self.interval

    def event_slot(self) -> Column:
        return next_tick(F.unix_micros("arrived_at"), self.interval)

    def find_firing_arrival(
        self, stored: DataFrame, side: Side, ticks: _Ticks
    ) -> tuple[DataFrame, Column]:
        stored = with_tick_arrival(stored, F.col(SLOT), self.interval, side.name, ticks)
        reached = F.col(f"_{side.name}_at")
        before = F.col(f"_{side.name}_watermark")
        open_then = F.coalesce(before < side.until, F.lit(True))
        return stored, F.when((reached <= side.arrival) & open_then, reached)


def next_tick(clock: Column, interval: int) -> Column:
    """Return the first multiple of an interval after a clock instant, BIGINT microseconds."""
    return clock - F.pmod(clock, F.lit(interval)) + F.lit(interval)


def with_tick_arrival(
    rows: DataFrame, due: Column, interval: int, side: str, ticks: _Ticks
) -> DataFrame:
    """Add two columns: when the processing clock reached the time `due` of a row.

    `_<side>_at` is the arrival at which the clock reached it, `_<side>_watermark` is the watermark
    before that arrival. Both are null if the clock has not reached `due` yet.

    Args:
        due: a multiple of `interval`, BIGINT microseconds.
        side: `early` or `late`.
    """
    names = {
        "tick": f"_{side}_tick",
        "arrival": f"_{side}_at",
        "watermark": f"_{side}_watermark",
    }
    reached = ticks(interval).withColumnsRenamed(names)
    return rows.join(F.broadcast(reached), due == F.col(f"_{side}_tick"), "left")
