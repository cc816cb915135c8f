"""Tests of the end of the last window that starts in a range, compared with assigned windows."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY, duration, instant
from tidemark.define.windows import Calendar, Cumulating, Global, Sliding, Tumbling, Window

HALF_HOUR = duration("30 minutes")


@pytest.mark.parametrize(
    "window",
    [
        Tumbling("6 hours", offset="1 hour"),
        Sliding("3 hours", "1 hour"),
        Cumulating("6 hours", "90 minutes"),
        Calendar("day", "Europe/Berlin"),
        Calendar("day", "America/Sao_Paulo"),
        Calendar("day", "America/St_Johns"),
        Calendar("week", "America/New_York"),
        Calendar("month", "Europe/Berlin"),
        Calendar("year", "Asia/Kolkata"),
    ],
    ids=str,
)
# Days of DST changes, on which midnight may be skipped or occur twice.
@pytest.mark.parametrize(
    "day", ["2013-03-31", "2013-10-27", "2018-11-04", "2018-02-18", "2010-11-07"]
)
def test_last_window_end_matches_the_assigned_windows(
    spark: SparkSession, window: Window, day: str
) -> None:
    ends = [instant(day) + n * HALF_HOUR for n in (0, 1, 5, 6, 47, 49)]
    moments = spark.range(instant(day) - duration("8 days"), max(ends) + 1, HALF_HOUR)
    rows = window.assign(moments.select(F.timestamp_micros("id").alias("at")), "at")
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    found = rows.agg(*(F.max(F.when(start < e, end)) for e in ends)).collect()[0]
    assert [window.last_window_end(e) for e in ends] == list(found)


def test_a_window_that_never_ends_closes_at_infinity() -> None:
    assert Global().last_window_end(instant("2013-01-01")) == INFINITY
    assert Calendar("year").last_window_end(INFINITY) == INFINITY
    for unit in ("day", "week", "month", "year"):
        assert Calendar(unit, "America/New_York").last_window_end(instant("9999-06-01")) == INFINITY
        Calendar(unit, "America/New_York").last_window_end(BEGINNING)
