"""Judging: is an event on time for a window? A pure function of the event's row.

For a window [start, end), the watermark W recorded with the event and the allowed lateness L:

| verdict  | rule              |
| -------- | ----------------- |
| on time  | W is null, W < end |
| late     | end <= W < end + L |
| too late | end + L <= W       |

W was written down when the event arrived, so the verdict is the same in every run. An event that
has no event time has no window: it is `NO_EVENT_TIME`. One that came before is a `DUPLICATE`, in
time or not: it never counts.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

ON_TIME, LATE, TOO_LATE, NO_EVENT_TIME, DUPLICATE = 0, 1, 2, 3, 4
VERDICTS = {
    ON_TIME: "on_time",
    LATE: "late",
    TOO_LATE: "too_late",
    NO_EVENT_TIME: "no_event_time",
    DUPLICATE: "duplicate",
}


def missed() -> Column:
    """Whether stored partials are of events that came too late, and do not count."""
    return (F.col("verdict") == TOO_LATE) & ~F.col("admitted")


def verdict(
    window_end: Column,
    watermark: Column,
    allowed_lateness: int,
    duplicate: Column | None = None,
) -> Column:
    """The verdict, a TINYINT, on events of windows that end at `window_end` (null: no event time).

    Args:
        window_end: TIMESTAMP, exclusive end of the window.
        watermark: TIMESTAMP, the source's watermark just before the event's arrival; null is
            minus infinity.
        allowed_lateness: microseconds.
        duplicate: BOOLEAN, whether the event came before; none does by default.
    """
    lag = F.unix_micros(watermark) - F.unix_micros(window_end)
    return (
        F.when(F.lit(False) if duplicate is None else duplicate, DUPLICATE)
        .when(window_end.isNull(), NO_EVENT_TIME)
        .when(watermark.isNull() | (lag < 0), ON_TIME)
        .when(lag < allowed_lateness, LATE)
        .otherwise(TOO_LATE)
        .cast("tinyint")
    )
