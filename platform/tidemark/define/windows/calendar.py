"""Windows of the civil calendar: days, weeks, months and years as people of a place count them."""

from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import duration

_LONGEST = {"day": "2 days", "week": "8 days", "month": "32 days", "year": "367 days"}


@dataclass(frozen=True)
class Calendar:
    """A day, week (from Monday), month or year of a time zone.

    A window is from local midnight to local midnight, so a day in which the clock is changed has
    23 or 25 hours. Where a day has no midnight it begins with its first instant; where midnight
    comes twice, with the first.

    Args:
        unit: `day`, `week`, `month` or `year`.
        timezone: a name of the IANA database, as in `Europe/Paris`.
    """

    unit: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in _LONGEST:
            raise DefinitionError(
                f"A calendar window's unit is one of {', '.join(_LONGEST)}, not '{self.unit}'."
            )
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise DefinitionError(
                f"'{self.timezone}' is not a time zone: write a name of the IANA database, as in "
                "'Europe/Paris'."
            ) from None

    def __str__(self) -> str:
        return f"calendar {self.unit} in {self.timezone}"

    @property
    def reach(self) -> int:
        return duration(_LONGEST[self.unit])

    def assign(self, rows: DataFrame, event_time: str) -> DataFrame:
        # The engine's session counts in UTC, so the shifted time reads as the local one.
        local = F.from_utc_timestamp(F.col(event_time), self.timezone)
        begin = F.date_trunc(self.unit, local)
        until = begin + F.expr(f"INTERVAL 1 {self.unit}")
        return rows.withColumns(
            {
                "window_start": F.to_utc_timestamp(begin, self.timezone),
                "window_end": F.to_utc_timestamp(until, self.timezone),
            }
        )
