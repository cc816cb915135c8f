"""The axis of event time in a picture: the time range that it shows, and its labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_STEPS_BY_UNIT = {
    1: (1, 2, 5),
    10: (1, 2, 5),
    100: (1, 2, 5),
    1_000: (1, 2, 5),
    10_000: (1, 2, 5),
    100_000: (1, 2, 5),
    _SECOND: (1, 2, 5, 10, 15, 30),
    _MINUTE: (1, 2, 5, 10, 15, 30),
    _HOUR: (1, 2, 3, 6, 12),
    _DAY: (1, 2, 7, 14, 28, 91, 365, 3650, 36500, 365000),
}
"""The distances that two labels can have, as multiples of a unit."""

_STEPS = [unit * factor for unit, factors in _STEPS_BY_UNIT.items() for factor in factors]


@dataclass(frozen=True)
class Axis:
    """The range of event time [begin, end] that a picture shows, in `length` columns or pixels.

    All times are in microseconds. At each end, the range includes an empty margin, `margin` wide.
    """

    begin: int
    end: int
    length: int
    margin: int = 0

    def position_of(self, micros: int) -> float:
        """Return the position of an instant, from 0 to `length`. An instant outside the
        range is at the nearer edge."""
        share = (micros - self.begin) / (self.end - self.begin)
        return min(max(share, 0.0), 1.0) * self.length

    def is_visible(self, micros: int) -> bool:
        """Return whether an instant is in the range."""
        return self.begin <= micros <= self.end

    def choose_ticks(self, letter_width: float) -> list[tuple[int, str]]:
        """Return round instants and their labels, as many as fit.

        If the axis shows only one day, the labels omit the date.
        """
        longest = 8
        while True:
            # The distance depends on the labels' length, and the labels on their distance.
            step = self._choose_step((longest + 3) * letter_width)
            instants = self._round_instants(step)
            labels = [(instant, self._label_instant(instant, step)) for instant in instants]
            length = max((len(label) for _, label in labels), default=0)
            if length <= longest or step == _STEPS[-1]:
                return labels
            longest = length

    @property
    def single_day(self) -> str | None:
        """The day that the axis shows, or None if it shows several. The midnight at the end of a
        day belongs to that day."""
        first = as_datetime(self.begin + self.margin).date()
        last = as_datetime(max(self.end - self.margin - 1, self.begin)).date()
        if first == last:
            return first.isoformat()
        return None

    def _choose_step(self, label_width: float) -> int:
        least = (self.end - self.begin) * label_width / self.length
        for step in _STEPS:
            if step >= least:
                return step
        return _STEPS[-1]

    def _round_instants(self, step: int) -> range:
        first = -(-self.begin // step) * step
        return range(first, self.end + 1, step)

    def _label_instant(self, instant: int, step: int) -> str:
        moment = as_datetime(instant)
        if step >= _DAY:
            return moment.date().isoformat()
        clock = f"{moment:%H:%M}"
        if step < _MINUTE:
            clock = f"{moment:%H:%M:%S}"
        if step < _SECOND:
            digits = 6 if step < 1000 else 3
            clock += f".{moment.microsecond:06}"[: digits + 1]
        if self.single_day:
            return clock
        return f"{moment:%m-%d} {clock}"


def create_axis(instants: Iterable[int], watermarks: Iterable[int], length: int) -> Axis:
    """Return an axis that shows all instants, and those watermarks that are near the instants."""
    shown = list(instants) or [0, _SECOND]
    begin = min(shown)
    end = max(shown)
    reach = (end - begin or _SECOND) // 2
    near = [mark for mark in watermarks if begin - reach <= mark <= end + reach]
    begin = min([begin, *near])
    end = max([end, *near])
    margin = (end - begin) // 40 or _SECOND
    return Axis(max(begin - margin, BEGINNING), min(end + margin, INFINITY), length, margin)
