"""Classify an event's lateness for a window: a pure function of the event's row.

The window is [start, end), W is the watermark recorded with the event, L is the allowed lateness:

| verdict  | rule              |
| -------- | ----------------- |
| on time  | W is null or W < end |
| late     | end <= W < end + L |
| too late | end + L <= W       |

W is recorded when the event arrives, so the verdict is the same in every run. An event without an
event time has no window: it is `NO_EVENT_TIME`. A duplicate is `DUPLICATE` even if it is on time,
because it never counts.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.helper_columns import ADMITTED, VERDICT

ON_TIME = 0
LATE = 1
TOO_LATE = 2
NO_EVENT_TIME = 3
DUPLICATE = 4
VERDICTS = {
    ON_TIME: "on_time",
    LATE: "late",
    TOO_LATE: "too_late",
    NO_EVENT_TIME: "no_event_time",
    DUPLICATE: "duplicate",
}


def is_uncounted() -> Column:
    """Return whether a stored partial consists of too-late events that are not counted."""
    return (F.col(VERDICT) == TOO_LATE) & ~F.col(ADMITTED)


def classify_lateness(
    window_end: Column,
    watermark: Column,
    allowed_lateness: int,
    duplicate: Column | None = None,
) -> Column:
    """Return the lateness of events for windows that end at `window_end`: a code, TINYINT.

    Args:
        window_end: TIMESTAMP, the exclusive end of the window; null if the event has no event time.
        watermark: TIMESTAMP, the source's watermark just before the event's arrival; null is minus
            infinity.
        allowed_lateness: microseconds.
        duplicate: BOOLEAN, true if the event is a duplicate; no event is by default.
    """
    if duplicate is None:
        duplicate = F.lit(False)
    lag = F.unix_micros(watermark) - F.unix_micros(window_end)
    return (
        F.when(duplicate, DUPLICATE)
        .when(window_end.isNull(), NO_EVENT_TIME)
        .when(watermark.isNull() | (lag < 0), ON_TIME)
        .when(lag < allowed_lateness, LATE)
        .otherwise(TOO_LATE)
        .cast("tinyint")
    )
