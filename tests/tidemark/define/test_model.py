"""Tests of window assignment and lateness classification at their boundaries."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY, parse_instant
from tidemark.define.classification import LATE, NO_EVENT_TIME, ON_TIME, TOO_LATE, classify_lateness
from tidemark.define.windows import Tumbling


@pytest.mark.parametrize(
    ("event", "start", "window"),
    [
        ("2024-01-01T00:00:00", "2024-01-01T00:00:00", Tumbling("1 minute")),
        ("2024-01-01T00:00:59.999999", "2024-01-01T00:00:00", Tumbling("1 minute")),
        ("1969-12-31T23:59:59.999999", "1969-12-31T23:59:00", Tumbling("1 minute")),
        ("1969-12-31T23:59:00", "1969-12-31T23:59:00", Tumbling("1 minute")),
        ("2024-01-01T10:00:00", "2024-01-01T09:43:00", Tumbling("30 minutes", "13 minutes")),
        ("2024-01-01T10:00:00", "2024-01-01T09:47:00", Tumbling("30 minutes", "-13 minutes")),
        ("2024-01-01T00:00:00.3", "2024-01-01T00:00:00.25", Tumbling("250 milliseconds")),
    ],
)
def test_a_tumbling_window_includes_its_start_and_excludes_its_end(
    spark: SparkSession, event: str, start: str, window: Tumbling
) -> None:
    rows = spark.createDataFrame([(parse_instant(event),)], "t BIGINT")
    assigned = window.assign_windows(rows.select(F.timestamp_micros("t").alias("ts")), "ts")
    found = assigned.select(F.unix_micros("window_start"), F.unix_micros("window_end")).first()
    assert found is not None
    assert tuple(found) == (parse_instant(start), parse_instant(start) + window.size)


def test_an_event_without_a_time_has_no_window(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(NULL AS TIMESTAMP) ts")
    found = Tumbling("1 minute").assign_windows(rows, "ts").first()
    assert found is not None
    assert (found["window_start"], found["window_end"]) == (None, None)


@pytest.mark.parametrize(
    ("end", "watermark", "lateness", "want"),
    [
        (60, None, 0, ON_TIME),
        (60, 59, 0, ON_TIME),
        (60, 60, 0, TOO_LATE),
        (60, 60, 30, LATE),
        (60, 89, 30, LATE),
        (60, 90, 30, TOO_LATE),
        (60, INFINITY, 30, TOO_LATE),
        (None, 60, 30, NO_EVENT_TIME),
        (None, None, 0, NO_EVENT_TIME),
        (-60, -61, 0, ON_TIME),
    ],
)
def test_lateness_is_classified_at_its_boundaries(
    spark: SparkSession, end: int | None, watermark: int | None, lateness: int, want: int
) -> None:
    rows = spark.createDataFrame([(end, watermark)], "e BIGINT, w BIGINT")
    judged = rows.select(
        classify_lateness(F.timestamp_micros("e"), F.timestamp_micros("w"), lateness)
    )
    found = judged.first()
    assert found is not None
    assert found[0] == want
