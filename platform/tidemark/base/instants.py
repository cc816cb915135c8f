"""Represent instants and durations as whole microseconds.

Event times, watermarks and window bounds are microseconds since 1970-01-01T00:00:00Z, the unit of
Spark's TIMESTAMP. The watermark before the first event is `None` (minus infinity). The watermark
after the end of a source is `INFINITY`, the last instant that both Python and Spark support.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from tidemark.base.errors import DefinitionError

INFINITY = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z: the watermark of a source that has ended."""

BEGINNING = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z: the start of the global window."""

EARLIEST = -62_104_060_800_000_000
LATEST = 253_370_764_800_000_000
"""The end of the range of valid event times, [EARLIEST, LATEST): the years 2 to 9998.

Windows of up to a year that contain such an event lie between `BEGINNING` and `INFINITY`. A window
that ends after `INFINITY` would never close.
"""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_CALENDAR = (
    " Months and years vary in length: use Calendar('month') or Calendar('year') for calendar "
    "windows."
)
_SHORT_UNITS = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
}
"""Short forms of units, in lower case only: elsewhere, `M` is a month."""
_INTERVAL = re.compile(r"\s*interval\s(.*)", re.IGNORECASE)
_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def parse_duration(text: str | timedelta) -> int:
    """Return a duration in microseconds: `"90 seconds"`, `"1.5 hours"`, `"-30 minutes"`, `"1h"`.

    Units are microsecond, millisecond, second, minute, hour, day and week, also in the plural, and
    us, ms, s, m, min, h, d and w. An interval of SQL is a duration too, as in `"interval 1 hour"`.
    A day is 24 hours; use calendar windows for calendar days.
    """
    micros = _count_micros(text)
    if abs(micros) > INFINITY - BEGINNING:
        raise DefinitionError(f"{text!r} is too long: a duration must be at most 9,999 years.")
    return micros


def _count_micros(text: str | timedelta) -> int:
    if isinstance(text, timedelta):
        return text // timedelta(microseconds=1)
    written = str(text)
    interval = _INTERVAL.fullmatch(written)
    if interval is not None:
        # SQL allows quotes around the number, and around the number and the unit.
        written = interval[1].replace("'", " ")
    match = _DURATION.fullmatch(written)
    name = "" if match is None else match[2]
    unit = _SHORT_UNITS.get(name) or name.lower().removesuffix("s")
    if match is None or unit not in _UNITS:
        hint = _CALENDAR if unit in ("month", "year") else ""
        raise DefinitionError(
            f"{text!r} is not a duration: write a number and one of {', '.join(_UNITS)}, as in "
            f"'90 seconds' or '1h'.{hint}"
        )
    return round(float(match[1]) * _UNITS[unit])


def checked_duration(subject: str, text: str | timedelta, *, zero: bool = False) -> int:
    """Return a duration in microseconds. Raise an error if it is not greater than zero.

    Args:
        subject: the subject of the error message, such as the name of the parameter.
        zero: true if a duration of zero is also valid.
    """
    length = parse_duration(text)
    if length < 0 or not (length or zero):
        rule = "must not be negative" if zero else "must be greater than zero"
        raise DefinitionError(f"{subject} {rule} (got '{text}').")
    return length


def parse_instant(text: str | datetime) -> int:
    """Return an ISO 8601 text or a datetime as microseconds; without an offset, it is in UTC."""
    if isinstance(text, str):
        try:
            text = datetime.fromisoformat(text)
        except ValueError:
            raise DefinitionError(
                f"'{text}' is not a date or time: write ISO 8601, for example '2013-01-31' or "
                "'2013-01-31T06:00:00Z'."
            ) from None
    if text.tzinfo is None:
        text = text.replace(tzinfo=UTC)
    return (text - EPOCH) // timedelta(microseconds=1)


def as_datetime(micros: int) -> datetime:
    """Return an instant in microseconds as an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def format_instant(micros: int | None) -> str | None:
    """Return an instant as ISO 8601 in UTC, with a fraction of a second only if it is not zero.

    Return `+infinity` for INFINITY, and None for minus infinity or for BEGINNING.
    """
    if micros is None or micros <= BEGINNING:
        return None
    if micros >= INFINITY:
        return "+infinity"
    return as_datetime(micros).isoformat().replace("+00:00", "Z")


def is_wait_over(wait: float, begun: float, current_time: float) -> bool:
    """Return whether `wait` seconds have passed since the time `begun`, by the wall clock.

    Also return True if `begun` is in the future: the clock was set back, so it is unknown how
    much time has passed.

    Args:
        begun: the start of the wait, in seconds since 1970.
        current_time: the current time, in seconds since 1970.
    """
    return not 0 <= current_time - begun < wait


def format_duration(micros: int) -> str:
    """Return a duration in the largest unit that divides it: `10800000000` is `3 hours`."""
    if micros == 0:
        return "0 seconds"
    unit = max((u for u in _UNITS if micros % _UNITS[u] == 0), key=_UNITS.__getitem__)
    count = micros // _UNITS[unit]
    if count == 1:
        return f"{count} {unit}"
    return f"{count} {unit}s"


def latest_watermark(marks: Iterable[int | None]) -> int | None:
    """Return the latest of some watermarks. None is minus infinity.

    Return None also without watermarks.
    """
    return max((mark for mark in marks if mark is not None), default=None)


def earliest_watermark(marks: Sequence[int | None]) -> int | None:
    """Return the earliest of some watermarks. None is minus infinity.

    Return None also without watermarks.
    """
    defined = [mark for mark in marks if mark is not None]
    if len(defined) == len(marks):
        return min(defined, default=None)
    return None
