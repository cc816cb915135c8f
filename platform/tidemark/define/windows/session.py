"""Session windows, which last as long as events of a key follow each other within a gap."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.instants import INFINITY, checked_duration, format_duration
from tidemark.define.windows.kind import Window, with_window


@checked_class
@dataclass(frozen=True, init=False)
class Session(Window):
    """A period of activity of a key, which ends after a `gap` without an event.

    An event's own session is [t, t + gap). Sessions of a key that overlap or touch are merged. Two
    events exactly `gap` apart are therefore in one session, as in Spark, Flink and Kafka Streams,
    and unlike in Beam. A session with first event t1 and last event t2 is [t1, t2 + gap). A late
    event may join two published sessions; the merged session is then published in their place.

    Example:
        Session("30 minutes")

    Args:
        gap: the time without events after which a session ends, a number and a unit from
            microseconds to weeks.

    Raises:
        DefinitionError: the gap is not greater than zero, or is not a length of time.
    """

    gap: int

    merges = True

    def __init__(self, gap: str | timedelta) -> None:
        object.__setattr__(self, "gap", checked_duration("The gap of a session window", gap))

    def __str__(self) -> str:
        return f"session, gap {format_duration(self.gap)}"

    @property
    def max_extent(self) -> int:
        # A session may have any length.
        return INFINITY

    @property
    def assigned_extent(self) -> int:
        return 0

    @property
    def merge_gap(self) -> int:
        return self.gap

    def last_window_end(self, end: int) -> int:
        return end + self.gap

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        """Return each row with its own session; sessions are merged when they are computed."""
        start = F.unix_micros(F.col(event_time))
        return with_window(rows, start, start + F.lit(self.gap))
