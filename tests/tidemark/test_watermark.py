"""Watermarks: what an arrival shows and how far event time is complete after it."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.errors import DefinitionError
from tidemark.instant import INFINITY
from tidemark.watermark import BoundedOutOfOrderness, Manual, Monotonous, Perfect, Watermark

HOUR = 3_600_000_000


def after(strategy: Watermark, *observed: int | None, given: int | None = None) -> list[int | None]:
    """The watermark after each of the arrivals whose newest event times are `observed`."""
    watermark, state, found = None, None, []
    for newest in observed:
        text = None if newest is None else str(newest)
        watermark, state = strategy.advance(state, watermark, text, 0, given)
        found.append(watermark)
    return found


def test_a_bound_is_taken_from_the_newest_event_time() -> None:
    assert after(BoundedOutOfOrderness("3 hours"), 10 * HOUR, 11 * HOUR) == [7 * HOUR, 8 * HOUR]


def test_a_watermark_never_goes_back() -> None:
    assert after(BoundedOutOfOrderness("1 hour"), 9 * HOUR, 2 * HOUR) == [8 * HOUR, 8 * HOUR]
    assert after(Monotonous(), 9 * HOUR, 2 * HOUR) == [9 * HOUR, 9 * HOUR]
    assert Manual().advance(None, 9 * HOUR, None, 0, 2 * HOUR) == (9 * HOUR, None)


def test_an_arrival_without_event_times_leaves_the_watermark() -> None:
    assert after(Monotonous(), None, 5, None) == [None, 5, 5]


def test_events_before_1970_have_watermarks_too() -> None:
    assert after(BoundedOutOfOrderness("1 hour"), -9 * HOUR) == [-10 * HOUR]


def test_perfect_history_has_no_watermark() -> None:
    assert after(Perfect(), 5, 6) == [None, None]


def test_a_manual_watermark_is_what_the_feed_gives() -> None:
    assert after(Manual(), 5, given=77) == [77]
    assert after(Manual(), 5) == [None]


def test_an_event_in_the_far_future_does_not_end_the_stream() -> None:
    assert after(Monotonous(), INFINITY + HOUR) == [INFINITY - 1]


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"bound is zero or more, not '-1 hour'"):
        BoundedOutOfOrderness("-1 hour")


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (BoundedOutOfOrderness("1 hour"), "1700000000000001"),
        (Monotonous(), "1700000000000001"),
        (Perfect(), None),
        (Manual(), None),
    ],
)
def test_observe_reduces_rows_to_a_text(
    spark: SparkSession, strategy: Watermark, expected: str | None
) -> None:
    times = spark.createDataFrame([(1_700_000_000_000_001,), (5,), (None,)], "t BIGINT")
    events = times.select(F.timestamp_micros("t").alias("t"))
    assert events.agg(strategy.observe(F.col("t"))).collect()[0][0] == expected
    assert events.where("false").agg(strategy.observe(F.col("t"))).collect()[0][0] is None
