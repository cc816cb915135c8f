"""Windows of the civil calendar: days, weeks, months and years in a time zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY, as_datetime, parse_duration, parse_instant
from tidemark.define.windows.aligned import Tumbling
from tidemark.define.windows.kind import Window

_LONGEST = {"day": "2 days", "week": "8 days", "month": "32 days", "year": "367 days"}
_MEAN = {"day": "1 day", "week": "7 days", "month": "30.436875 days", "year": "365.2425 days"}
_HELD_BY = {"day": ("week", "month", "year"), "month": ("year",)}
_DAY = parse_duration("1 day")
_EDGE = parse_duration("800 days")
_OBSERVED = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC))


@checked_class
@dataclass(frozen=True)
class Calendar(Window):
    """A day, week (from Monday), month or year of a time zone.

    A window lasts from local midnight to local midnight, so a day on which the clock changes has 23
    or 25 hours. If a day has no midnight, it begins with its first instant. If midnight occurs
    twice, the day begins with the first one, even if the clock then goes back to the day before.

    Example:
        Calendar("month", "America/New_York")
        Calendar("week")  # from Monday to Monday in UTC

    Args:
        unit: `day`, `week`, `month` or `year`.
        timezone: a name of the IANA database, as in `Europe/Paris`.

    Raises:
        DefinitionError: the unit or the time zone does not exist.
    """

    unit: str
    timezone: str = "UTC"

    disjoint = True

    def __post_init__(self) -> None:
        if self.unit not in _LONGEST:
            raise DefinitionError(
                f"The unit of a calendar window must be one of {', '.join(_LONGEST)} (got "
                f"'{self.unit}')."
            )
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise DefinitionError(
                f"'{self.timezone}' is not a time zone: use a name of the IANA database, for "
                "example 'Europe/Paris'."
            ) from None

    def __str__(self) -> str:
        return f"calendar {self.unit} in {self.timezone}"

    @property
    def max_extent(self) -> int:
        return parse_duration(_LONGEST[self.unit])

    @property
    def period(self) -> int:
        return parse_duration(_MEAN[self.unit])

    def last_window_end(self, end: int) -> int:
        if end > INFINITY - _EDGE:
            return INFINITY
        return self.window_around(max(end - 1, BEGINNING + _DAY))[1]

    def window_around(self, micros: int) -> tuple[int, int]:
        """Return the start and the end of the window that contains an instant, in microseconds."""
        zone = ZoneInfo(self.timezone)
        day = as_datetime(micros).astimezone(zone).date()
        after = self._day_after(day)
        start = _find_midnight(self._first_day(day), zone)
        end = _find_midnight(after, zone)
        next_end = _find_midnight(self._day_after(after), zone)
        # The clock may go back across midnight, to a day whose window has ended.
        if micros < end:
            return (start, end)
        return (end, next_end)

    def _first_day(self, day: date) -> date:
        """Return the first day of the window that contains a day."""
        match self.unit:
            case "day":
                return day
            case "week":
                return day - timedelta(days=day.weekday())
            case "month":
                return day.replace(day=1)
            case _:
                return date(day.year, 1, 1)

    def _day_after(self, day: date) -> date:
        """Return the first day after the window that contains a day."""
        match self.unit:
            case "day":
                return day + timedelta(days=1)
            case "week":
                return day + timedelta(days=7 - day.weekday())
            case "month":
                return (day.replace(day=1) + timedelta(days=31)).replace(day=1)
            case _:
                return date(day.year + 1, 1, 1)

    def contains_windows(self, inner: Window) -> bool:
        if isinstance(inner, Calendar):
            same = inner.timezone == self.timezone
            return same and self.unit in _HELD_BY.get(inner.unit, ())
        if not isinstance(inner, Tumbling) or _DAY % inner.size:
            return False
        for shift in _utc_offsets(self.timezone):
            if (-shift - inner.offset) % inner.size != 0:
                return False
        return True

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        # The engine's session time zone is UTC, so the shifted time reads as the local one.
        local = F.from_utc_timestamp(F.col(event_time), self.timezone)
        begin = F.date_trunc(self.unit, local)
        local_end = begin + F.expr(f"INTERVAL 1 {self.unit}")
        next_local_end = begin + F.expr(f"INTERVAL 2 {self.unit}")
        start = F.to_utc_timestamp(begin, self.timezone)
        end = F.to_utc_timestamp(local_end, self.timezone)
        next_end = F.to_utc_timestamp(next_local_end, self.timezone)
        # As in `window_around`, the clock may go back across midnight.
        ended = F.col(event_time) >= end
        return rows.select(
            "*",
            F.when(ended, end).otherwise(start).alias("window_start"),
            F.when(ended, next_end).otherwise(end).alias("window_end"),
        )


def _find_midnight(day: date, zone: ZoneInfo) -> int:
    return parse_instant(datetime.combine(day, time(), zone))


def _utc_offsets(timezone: str) -> set[int]:
    """Return all offsets from UTC, in microseconds, that a time zone has from 1970 to 2040."""
    zone = ZoneInfo(timezone)
    (moment, end) = _OBSERVED
    shifts: set[int] = set()
    while moment < end:
        shift = zone.utcoffset(moment.astimezone(zone)) or timedelta()
        shifts.add(shift // timedelta(microseconds=1))
        moment += timedelta(days=7)
    return shifts
