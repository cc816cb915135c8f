"""Firings: what a trigger may ask for, each with its slots.

Every event of a window joins a *slot*, the unit that fires whole or not at all. It is told by the
event's own row, and by how many came before it where a firing counts: so an event joins the same
slot whatever the cut into runs. Whether a slot has fired, as of an arrival, follows from the
watermark and the clock that the timeline has for that arrival.

| firing | the slot of an event | it has fired |
| --- | --- | --- |
| `Never()` | 0 | never by itself |
| `EachArrival()` | arrival + 1; early 0 when that arrival closes the window | at once |
| `Count(n)` | 1 for the window's first n events, 2 for the next n, … | when it has n events |
| `Every(i)` | the first multiple of i after its arrival (microseconds) | when the clock is there |
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import describe, duration
from tidemark.define.helper_columns import helper

RANK = helper("rank")
"""The column that tells the how many-th of its window's on-time, or late, events an event is."""

Ticks = Callable[[int], DataFrame]
"""By an interval in microseconds, its multiples that the clock has reached: `tick`, the `arrival`
that found it there, and the `watermark` before that, all BIGINT."""


@dataclass(frozen=True)
class Side:
    """The early or the late firings of some windows.

    Args:
        name: `early` or `late`.
        until: the watermark from which on a slot no longer fires by itself, BIGINT microseconds.
        arrival: the arrival as of which it is asked what has fired, BIGINT.
        slots: the partials that are of one slot.
    """

    name: str
    until: Column
    arrival: Column
    slots: WindowSpec


@dataclass(frozen=True)
class Firing:
    """What a trigger may ask for."""

    ranked: ClassVar[bool] = False
    """Whether an event's slot depends on how many came before it."""

    by_arrival: ClassVar[bool] = False
    """Whether each arrival that brings events fires them."""

    @property
    def clock(self) -> int | None:
        """The interval on the processing clock by which it fires, in microseconds."""
        return None

    def full(self, pending: int) -> bool:
        """Whether so many events that wait fire for their number."""
        return False

    def slot(self) -> Column:
        """The slot of an event, BIGINT."""
        raise NotImplementedError

    def fires(self, stored: DataFrame, side: Side, ticks: Ticks) -> tuple[DataFrame, Column]:
        """The partials, and the arrival with which each one's slot fired by itself, null where
        not."""
        raise NotImplementedError


@checked_class
@dataclass(frozen=True)
class Never(Firing):
    """Fire nothing by itself: early, what comes waits for the window's end; late, for its last.

    Example:
        Trigger(late=Never())  # all late events of a window together, when it becomes final
    """

    def __str__(self) -> str:
        return "never"

    def slot(self) -> Column:
        return F.lit(0)

    def fires(self, stored: DataFrame, side: Side, ticks: Ticks) -> tuple[DataFrame, Column]:
        return stored, F.lit(None).cast("bigint")


@checked_class
@dataclass(frozen=True)
class EachArrival(Firing):
    """Fire after each arrival that brought events.

    The arrival whose watermark closes the window fires it on time, not early.

    Example:
        Trigger(early=EachArrival())
    """

    by_arrival = True

    def __str__(self) -> str:
        return "each arrival"

    def slot(self) -> Column:
        return F.col("arrival") + 1

    def fires(self, stored: DataFrame, side: Side, ticks: Ticks) -> tuple[DataFrame, Column]:
        # An early slot of 0 waits for the end: its arrival has closed the window.
        return stored, F.when(F.col("slot") > 0, F.col("slot") - 1)


@checked_class
@dataclass(frozen=True)
class Count(Firing):
    """Fire whenever `n` more events of a window and key have come, on time or late ones apart.

    They are counted in the order of arrivals and of positions in them, so one arrival may fire a
    window more than once, and the same events fire together in any run.

    Example:
        Trigger(early=Count(100))

    Args:
        n: how many events, 1 or more.

    Raises:
        DefinitionError: fewer.
    """

    n: int

    ranked = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise DefinitionError(f"A trigger's count is 1 or more, not {self.n}.")

    def __str__(self) -> str:
        return f"every {self.n} events"

    def full(self, pending: int) -> bool:
        return pending >= self.n

    def slot(self) -> Column:
        return F.floor((F.col(RANK) - 1) / self.n) + 1

    def fires(self, stored: DataFrame, side: Side, ticks: Ticks) -> tuple[DataFrame, Column]:
        whole = F.sum("events").over(side.slots) == self.n
        return stored, F.when(whole, F.max("last_arrival").over(side.slots))


@checked_class
@dataclass(frozen=True, init=False)
class Every(Firing):
    """Fire at multiples of an interval on the processing clock, counted from 1970.

    Arrivals tell the clock: what came before a multiple fires with the first arrival whose
    processing time is there. Where nothing more comes, no time passes.

    Example:
        Trigger(early=Every("1 minute"))  # with the first arrival of each minute

    Args:
        interval: a number and a unit from microseconds to weeks, more than zero.

    Raises:
        DefinitionError: an interval that is not, or a text that is no length of time.
    """

    interval: int

    def __init__(self, interval: str | timedelta) -> None:
        object.__setattr__(self, "interval", duration(interval))
        if self.interval <= 0:
            raise DefinitionError(f"A trigger's interval is more than zero, not '{interval}'.")

    def __str__(self) -> str:
        return f"every {describe(self.interval)}"

    @property
    def clock(self) -> int:
        return self.interval

    def slot(self) -> Column:
        return tick(F.unix_micros("arrived_at"), self.interval)

    def fires(self, stored: DataFrame, side: Side, ticks: Ticks) -> tuple[DataFrame, Column]:
        stored = ticked(stored, F.col("slot"), self.interval, side.name, ticks)
        reached, before = F.col(f"_{side.name}_at"), F.col(f"_{side.name}_watermark")
        open_then = F.coalesce(before < side.until, F.lit(True))
        return stored, F.when((reached <= side.arrival) & open_then, reached)


def tick(clock: Column, interval: int) -> Column:
    """The first multiple of an interval after an instant of the clock, BIGINT microseconds."""
    return clock - F.pmod(clock, F.lit(interval)) + F.lit(interval)


def ticked(rows: DataFrame, due: Column, interval: int, side: str, ticks: Ticks) -> DataFrame:
    """Rows with the arrival that found the clock at the multiple `due`, as `_<side>_at`, and the
    watermark before it, as `_<side>_watermark`; null where the clock is not there yet."""
    names = {"tick": f"_{side}_tick", "arrival": f"_{side}_at", "watermark": f"_{side}_watermark"}
    reached = ticks(interval).withColumnsRenamed(names)
    return rows.join(F.broadcast(reached), due == F.col(f"_{side}_tick"), "left")
