"""The base class of window kinds, and functions that they share."""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY


class Window(ABC):
    """A kind of window. Lengths of time are in microseconds.

    Windows are half-open, [start, end): an event at `start` is inside, one at `end` is not.
    """

    merges: ClassVar[bool] = False
    """True if windows of a key that overlap or touch are merged."""

    disjoint: ClassVar[bool] = False
    """True if no two windows of this kind can contain the same instant, even of different keys."""

    overlaps: ClassVar[bool] = False
    """True if an event may be in several windows; `assign_windows` then adds `FIRST`."""

    @property
    @abstractmethod
    def max_extent(self) -> int:
        """How far an event may lie after the start of a window that contains it (microseconds)."""

    @property
    def assigned_extent(self) -> int:
        """How far an event may lie after the start of a window that `assign_windows` gives it.

        In microseconds. For sessions, this is 0: an event's own session starts at the event.
        """
        return self.max_extent

    @property
    def merge_gap(self) -> int:
        """How far beyond the end of a window an event may lie and still join it (microseconds)."""
        return 0

    @property
    def period(self) -> int | None:
        """The distance between the starts of consecutive windows, in microseconds.

        The mean distance if it varies; None if windows are not consecutive.
        """
        return None

    @property
    def closing_every(self) -> int | None:
        """The distance between the ends of consecutive windows, in microseconds; see `period`."""
        return self.period

    @property
    def slicing(self) -> "Slicing | None":
        """The slices by which overlapping windows share work; None if slices would save no work."""
        return None

    @abstractmethod
    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        """Return one row for each event and each of its windows.

        The added TIMESTAMP columns `window_start` and `window_end` have the bounds of the window.
        Both are null in the only row of an event without an event time, and if the window is not in
        the years 1 to 9999 (`with_window`). If windows overlap, the BOOLEAN column `FIRST` is
        added. It is true in the row of the event's window that ends first.

        Args:
            rows: events, without columns of these names.
            event_time: the name of their TIMESTAMP column with the event time.
        """

    def last_window_end(self, end: int) -> int:
        """Return the watermark at which every window that starts before `end` has ended.

        A session that starts before `end` may continue beyond any watermark. For sessions, the
        result is the watermark at which all sessions without an event after `end` have ended.
        """
        return min(end + self.max_extent, INFINITY)

    def contains_windows(self, inner: "Window") -> bool:
        """Return whether each window of the kind `inner` lies completely inside one window of this
        kind.
        """
        return False


class Slicing(Protocol):
    """Slices of overlapping windows: all instants of a slice are in the same windows."""

    def slice_start(self, time: Column) -> Column:
        """Return the start of the slice that contains an instant, BIGINT microseconds."""
        ...

    def first_end(self, time: Column) -> Column:
        """Return the end of the window that ends first among those that contain an instant."""
        ...


def with_window(rows: DataFrame, start: Column, end: Column, *further: Column) -> DataFrame:
    """Return `rows` with `window_start` and `window_end`, two columns of type TIMESTAMP.

    They are null if the window does not lie within the years 1 to 9999, the range of a TIMESTAMP.

    Args:
        start, end: the bounds of each row's window, BIGINT microseconds.
        further: other columns to add.
    """
    within = (start >= BEGINNING) & (end <= INFINITY)
    window_start = F.when(within, F.timestamp_micros(start)).alias("window_start")
    window_end = F.when(within, F.timestamp_micros(end)).alias("window_end")
    # A chain of `withColumns` would be slower: the engine analyzes everything below each of them
    # again.
    return rows.select("*", window_start, window_end, *further)


def floor_to(micros: Column, step: int, offset: int) -> Column:
    """Return the last multiple of `step`, counted from `offset`, that is not after `micros`."""
    return micros - F.pmod(micros - F.lit(offset), F.lit(step))
