"""The axis of event time in a picture: the time range that it shows, and its labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime

_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_STEPS = (
    *(10**power * times for power in range(6) for times in (1, 2, 5)),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 365, 3650, 36500, 365000)),
)


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
        """Return round instants and their labels, as many as fit if a letter is `letter` wide.

        If the axis shows only one day, the labels omit the date.
        """
        form = "0" * 8
        while True:
            step = self._choose_step((len(form) + 3) * letter_width)
            labels = [
                (instant, self._label_instant(instant, step))
                for instant in self._round_instants(step)
            ]
            longest = max((label for _, label in labels), key=len, default="")
            if len(longest) <= len(form) or step == _STEPS[-1]:
                return labels
            form = longest

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
        enough = (self.end - self.begin) * label_width / self.length
        return next((s for s in _STEPS if s >= enough), _STEPS[-1])

    def _round_instants(self, step: int) -> range:
        return range(-(-self.begin // step) * step, self.end + 1, step)

    def _label_instant(self, instant: int, step: int) -> str:
        moment = as_datetime(instant)
        if step >= _DAY:
            return moment.date().isoformat()
        clock = f"{moment:%H:%M}" if step >= _MINUTE else f"{moment:%H:%M:%S}"
        if step < _SECOND:
            digits = 6 if step < 1000 else 3
            clock += f".{moment.microsecond:06}"[: digits + 1]
        if self.single_day:
            return clock
        return f"{moment:%m-%d} {clock}"


def create_axis(instants: Iterable[int], watermarks: Iterable[int], length: int) -> Axis:
    """Return an axis that shows all instants, and those watermarks that are near the instants."""
    shown = list(instants) or [0, _SECOND]
    span = max(shown) - min(shown) or _SECOND
    near = [w for w in watermarks if min(shown) - span // 2 <= w <= max(shown) + span // 2]
    begin = min(shown + near)
    end = max(shown + near)
    margin = (end - begin) // 40 or _SECOND
    return Axis(max(begin - margin, BEGINNING), min(end + margin, INFINITY), length, margin)
