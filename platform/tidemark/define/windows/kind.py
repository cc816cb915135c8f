"""What every kind of window tells of itself."""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY


class Window(ABC):
    """A kind of window; what all of them tell of themselves. Lengths of time are in microseconds.

    Windows are half-open, [start, end): an event at `start` is inside, one at `end` is not.
    """

    merges: ClassVar[bool] = False
    """Whether windows of a key that overlap or touch are one."""

    disjoint: ClassVar[bool] = False
    """Whether no two windows hold the same instant, whatever the events."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """How far, in microseconds, an event may lie after the start of a window that holds it."""

    @property
    def assigned_reach(self) -> int:
        """The same of a window as it is assigned to an event, before any are merged."""
        return self.reach

    @property
    def joins(self) -> int:
        """How far beyond its end, in microseconds, an event may lie that still joins a window."""
        return 0

    @property
    def period(self) -> int | None:
        """How far the starts of windows that follow each other are apart, in microseconds, the mean
        of it where that differs; None where they do not follow each other."""
        return None

    @property
    def closing_every(self) -> int | None:
        """How far the ends of windows that follow each other are apart; otherwise as `period`."""
        return self.period

    @property
    def slicing(self) -> "Slicing | None":
        """How windows that overlap share their work; None where they do not."""
        return None

    @abstractmethod
    def assign(self, rows: DataFrame, event_time: str) -> DataFrame:
        """`rows` with `window_start` and `window_end`, one row for each window of each event.

        A row without an event time stays, once, with a null window, and so does a row for each of
        its windows that is out of range (`assigned`). `rows` have neither column.
        """

    def closing(self, end: int) -> int:
        """The watermark that has passed the end of every window that starts before `end`.

        A session that started before `end` may go on beyond any watermark: for sessions it is the
        one that has passed those without an event after `end`.
        """
        return min(end + self.reach, INFINITY)

    def holds(self, inner: "Window") -> bool:
        """Whether each `inner` window lies whole in one of these."""
        return False


class Slicing(Protocol):
    """Slices of overlapping windows: spans of time of which all instants are in the same ones."""

    def slice_start(self, time: Column) -> Column:
        """The start of the slice that holds an instant, BIGINT microseconds."""
        ...

    def first_end(self, time: Column) -> Column:
        """The end of the window that ends first, of those that hold an instant."""
        ...


def assigned(rows: DataFrame, start: Column, end: Column) -> DataFrame:
    """Return `rows` with their window's bounds, given in microseconds: null if the window does not
    lie within the years 1 to 9999, which are all that a TIMESTAMP can hold."""
    within = (start >= BEGINNING) & (end <= INFINITY)
    bounds = [F.when(within, F.timestamp_micros(bound)) for bound in (start, end)]
    # The engine analyses all that is below a `withColumns` at once, and does so at each of them.
    return rows.select("*", bounds[0].alias("window_start"), bounds[1].alias("window_end"))


def last_closing(end: int, step: int, size: int, offset: int) -> int:
    """Where the last window ends that starts before `end`, of windows begun every `step`."""
    return (end - 1 - offset) // step * step + offset + size


def floor_to(micros: Column, step: int, offset: int) -> Column:
    """The last multiple of `step`, counted from `offset`, that is not after `micros`."""
    return micros - F.pmod(micros - F.lit(offset), F.lit(step))
