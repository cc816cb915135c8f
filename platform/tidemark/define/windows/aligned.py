"""Windows with fixed boundaries on the time axis, the same for every key."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import (
    BEGINNING,
    INFINITY,
    checked_duration,
    format_duration,
    parse_duration,
)
from tidemark.define.helper_columns import FIRST, name_helper
from tidemark.define.windows.kind import Slicing, Window, floor_to, with_window

_START, _END, _PLACE = map(name_helper, ("start", "end", "place"))
_MAX_WINDOWS_PER_EVENT = 100_000


class _Repeating(Window):
    """Windows that start every `period`, shifted by an offset, and have a fixed or growing size."""

    size: int
    offset: int

    @property
    def max_extent(self) -> int:
        return self.size

    @property
    def period(self) -> int:
        return self.size

    def last_window_end(self, end: int) -> int:
        return (end - 1 - self.offset) // self.period * self.period + self.offset + self.size


@checked_class
@dataclass(frozen=True, init=False)
class Tumbling(_Repeating):
    """Windows of one size that follow each other without gap or overlap: each event is in one.

    Window N is [N * size + offset, (N + 1) * size + offset), for negative N too, counted in UTC
    from 1970. January 1, 1970 was a Thursday: for weeks that begin on Monday, use the offset `"4
    days"` or a `Calendar`.

    Example:
        Tumbling("1 hour")
        Tumbling("1 day", offset="6 hours")  # from 06:00 to 06:00 in UTC

    Args:
        size: the length of each window, a number and a unit from microseconds to weeks.
        offset: the amount by which all windows are shifted; it may be negative.

    Raises:
        DefinitionError: the size is not greater than zero, or a text is not a length of time.
    """

    size: int
    offset: int

    disjoint = True

    def __init__(self, size: str | timedelta, offset: str | timedelta = "0 seconds") -> None:
        object.__setattr__(self, "size", checked_duration("The size of a tumbling window", size))
        object.__setattr__(self, "offset", parse_duration(offset))

    def __str__(self) -> str:
        return f"tumbling {format_duration(self.size)}{_describe_offset(self.offset)}"

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        start = floor_to(F.unix_micros(F.col(event_time)), self.size, self.offset)
        return with_window(rows, start, start + F.lit(self.size))

    def contains_windows(self, inner: Window) -> bool:
        if not isinstance(inner, Tumbling):
            return False
        return self.size % inner.size == 0 and (self.offset - inner.offset) % inner.size == 0


@checked_class
@dataclass(frozen=True, init=False)
class Sliding(_Repeating):
    """Windows of one size that start every `slide`: an event is in size / slide of them.

    Window N is [N * slide + offset, N * slide + offset + size), for negative N too, counted in UTC
    from 1970. If the slide is longer than the size, there are gaps between windows. An event in a
    gap belongs to no window, and is only in the event log. The lateness of an event is classified
    for each of its windows: it may be on time for one window and late for another.

    Example:
        Sliding("1 hour", "10 minutes")  # six windows for each event

    Args:
        size: the length of each window, a number and a unit from microseconds to weeks.
        slide: the distance between the starts of windows.
        offset: the amount by which all windows are shifted; it may be negative.

    Raises:
        DefinitionError: the size or the slide is not greater than zero, an event would be in more
            than 100,000 windows, or a text is not a length of time.
    """

    size: int
    slide: int
    offset: int

    overlaps = True

    def __init__(
        self, size: str | timedelta, slide: str | timedelta, offset: str | timedelta = "0 seconds"
    ) -> None:
        object.__setattr__(self, "size", checked_duration("The size of a sliding window", size))
        object.__setattr__(self, "slide", checked_duration("The slide of a sliding window", slide))
        object.__setattr__(self, "offset", parse_duration(offset))
        _check_overlap(str(self), self.size, self.slide)

    def __str__(self) -> str:
        gap = self.slide - self.size
        description = f"sliding {format_duration(self.size)} every {format_duration(self.slide)}"
        description += _describe_offset(self.offset)
        if gap > 0:
            description += f", with uncovered gaps of {format_duration(gap)}"
        return description

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        time = F.unix_micros(F.col(event_time))
        last = floor_to(time, self.slide, self.offset)
        first = floor_to(time - F.lit(self.size), self.slide, self.offset) + F.lit(self.slide)
        nothing = F.array(F.lit(None).cast("bigint"))
        starts = (
            F.when(time.isNull(), nothing)
            .when(first <= last, F.sequence(first, last, F.lit(self.slide)))
            .otherwise(F.slice(nothing, 1, 0))
        )
        rows = rows.select("*", F.posexplode(starts).alias(_PLACE, _START))
        start = F.col(_START)
        placed = with_window(rows, start, start + F.lit(self.size), _is_first())
        return placed.drop(_PLACE, _START)

    @property
    def period(self) -> int:
        return self.slide

    @property
    def slicing(self) -> Slicing | None:
        # Slices save work only if each event is in at least two windows.
        if self.size >= 2 * self.slide:
            return self
        return None

    def slice_start(self, time: Column) -> Column:
        """Return the start of the slice of `time`: the last bound of a window that is <= `time`."""
        begun = floor_to(time, self.slide, self.offset)
        return F.greatest(begun, floor_to(time, self.slide, self.offset + self.size))

    def first_end(self, time: Column) -> Column:
        """Return the end of the window that ends first among those that contain an instant."""
        return floor_to(time, self.slide, self.offset + self.size) + F.lit(self.slide)


@checked_class
@dataclass(frozen=True, init=False)
class Cumulating(_Repeating):
    """Windows that grow from a fixed start by `step` until they have their full size.

    The windows from the start S = N * size + offset are [S, S + step), [S, S + 2 * step) and so on,
    up to [S, S + size); N is counted in UTC from 1970. The windows with the same start show how a
    total grows.

    Example:
        Cumulating("1 day", "1 hour")  # 00:00 to 01:00, 00:00 to 02:00, … 00:00 to 24:00

    Args:
        size: the length of the last window, a number and a unit from microseconds to weeks.
        step: the amount by which each window is longer than the one before; it must divide the
            size.
        offset: the amount by which all windows are shifted; it may be negative.

    Raises:
        DefinitionError: the size or the step is not greater than zero, the size is not a multiple
            of the step, an event would be in more than 100,000 windows, or a text is not a length
            of time.
    """

    size: int
    step: int
    offset: int

    overlaps = True

    def __init__(
        self, size: str | timedelta, step: str | timedelta, offset: str | timedelta = "0 seconds"
    ) -> None:
        object.__setattr__(self, "size", checked_duration("The size of a cumulating window", size))
        object.__setattr__(self, "step", checked_duration("The step of a cumulating window", step))
        object.__setattr__(self, "offset", parse_duration(offset))
        if self.size % self.step:
            raise DefinitionError(
                f"The size of a cumulating window must be a multiple of its step (got size {size} "
                f"and step {step})."
            )
        _check_overlap(str(self), self.size, self.step)

    def __str__(self) -> str:
        description = f"cumulating {format_duration(self.size)} by {format_duration(self.step)}"
        return description + _describe_offset(self.offset)

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        time = F.unix_micros(F.col(event_time))
        step = F.lit(self.step)
        start = floor_to(time, self.size, self.offset)
        first = floor_to(time, self.step, self.offset) + step
        ends = F.posexplode_outer(F.sequence(first, start + F.lit(self.size), step))
        rows = rows.select("*", ends.alias(_PLACE, _END))
        return with_window(rows, start, F.col(_END), _is_first()).drop(_PLACE, _END)

    @property
    def slicing(self) -> Slicing | None:
        if self.size > self.step:
            return self
        return None

    @property
    def closing_every(self) -> int:
        return self.step

    def slice_start(self, time: Column) -> Column:
        """Return the start of the slice of `time`: the last bound of a window that is <= `time`."""
        return floor_to(time, self.step, self.offset)

    def first_end(self, time: Column) -> Column:
        """Return the end of the window that ends first among those that contain an instant."""
        return self.slice_start(time) + F.lit(self.step)


@checked_class
@dataclass(frozen=True)
class Global(Window):
    """One window that contains all of time; it closes when the stream ends.

    The stream ends with `tidemark close SOURCE`, or with an arrival that the connector marks as the
    last. Before that, only early firings publish the window.

    Example:
        Global()
    """

    def __str__(self) -> str:
        return "global"

    @property
    def max_extent(self) -> int:
        return INFINITY - BEGINNING

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        has_time = F.col(event_time).isNotNull()
        return with_window(
            rows, F.when(has_time, F.lit(BEGINNING)), F.when(has_time, F.lit(INFINITY))
        )


def _is_first() -> Column:
    """Return `FIRST`, computed from a window's position (`_PLACE`) among the windows of its event.

    An event without a window has one row, in which the position may be null.
    """
    return (F.coalesce(_PLACE, F.lit(0)) == 0).alias(FIRST)


def _check_overlap(window: str, size: int, step: int) -> None:
    """Refuse windows that overlap so much that one event's windows exhaust the engine's memory."""
    count = -(-size // step)
    if count > _MAX_WINDOWS_PER_EVENT:
        raise DefinitionError(
            f"With {window}, each event would be in {count:,} windows; at most "
            f"{_MAX_WINDOWS_PER_EVENT:,} are possible. Use a longer step, or a shorter size."
        )


def _describe_offset(offset: int) -> str:
    if offset:
        return f", offset {format_duration(offset)}"
    return ""
