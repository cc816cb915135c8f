"""Tests of watermark strategies: the watermark after each arrival."""

import json
import random
from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.define.source import Source
from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    MonotonicTimestamps,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
    forward,
)
from tidemark.define.watermarks.partitioned import Partition

HOUR = 3_600_000_000


def after(strategy: Watermark, *observed: int | None, given: int | None = None) -> list[int | None]:
    """Return the watermark after each of the arrivals with the newest event times `observed`."""
    watermark, state, found = None, None, []
    for newest in observed:
        text = None if newest is None else str(newest)
        watermark, state = strategy.advance(state, watermark, text, 0, given)
        found.append(watermark)
    return found


def test_the_bound_is_subtracted_from_the_newest_event_time() -> None:
    assert after(BoundedOutOfOrderness("3 hours"), 10 * HOUR, 11 * HOUR) == [7 * HOUR, 8 * HOUR]


def test_a_watermark_never_goes_back() -> None:
    assert after(BoundedOutOfOrderness("1 hour"), 9 * HOUR, 2 * HOUR) == [8 * HOUR, 8 * HOUR]
    assert after(MonotonicTimestamps(), 9 * HOUR, 2 * HOUR) == [9 * HOUR, 9 * HOUR]
    assert after(Punctuated("mark"), 9 * HOUR, None, 2 * HOUR) == [9 * HOUR] * 3
    assert Manual().advance(None, 9 * HOUR, None, 0, 2 * HOUR) == (9 * HOUR, None)


def test_an_arrival_without_event_times_keeps_the_watermark() -> None:
    assert after(MonotonicTimestamps(), None, 5, None) == [None, 5, 5]
    assert after(BoundedOutOfOrderness("1 microsecond"), None, 5, None) == [None, 4, 4]


def test_events_before_1970_have_watermarks_too() -> None:
    assert after(BoundedOutOfOrderness("1 hour"), -9 * HOUR) == [-10 * HOUR]


def test_perfect_history_has_no_watermark() -> None:
    assert after(Perfect(), 5, 6) == [None, None]


def test_a_manual_watermark_is_the_given_one() -> None:
    assert after(Manual(), 5, given=77) == [77]
    assert after(Manual(), 5) == [None]


def test_an_event_in_the_far_future_does_not_end_the_source() -> None:
    assert after(MonotonicTimestamps(), INFINITY + HOUR) == [INFINITY - 1]


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"bound of a watermark must not be negative \(got '-1 hour'"
    ):
        BoundedOutOfOrderness("-1 hour")
    assert after(BoundedOutOfOrderness("0 seconds"), 5) == [5]


def test_the_bound_and_the_idle_time_may_be_as_small_as_possible() -> None:
    assert PerPartition("sensor", "0 seconds", idle="1 microsecond").idle == 1
    assert PerPartition("sensor", "0 seconds").idle == HOUR / 12


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (BoundedOutOfOrderness("1 hour"), "1700000000000001"),
        (MonotonicTimestamps(), "1700000000000001"),
        (PerPartition("sensor", "1 hour"), "1700000000000001"),
        (Punctuated("timestamp_micros(mark)"), "7"),
        (Punctuated("CASE WHEN mark > 5 THEN t END"), "5"),
        (Punctuated("timestamp_micros(1 div (mark - 7))"), "0"),
        (Perfect(), None),
        (Manual(), None),
    ],
)
def test_observe_reduces_rows_to_a_text(
    spark: SparkSession, strategy: Watermark, expected: str | None
) -> None:
    times = [(1_700_000_000_000_001, 3), (5, 7), (None, None)]
    rows = spark.createDataFrame(times, "t BIGINT, mark BIGINT")
    events = rows.withColumn("t", F.timestamp_micros("t"))
    assert events.agg(strategy.observe(F.col("t"))).collect()[0][0] == expected
    assert events.where("false").agg(strategy.observe(F.col("t"))).collect()[0][0] is None


Arrived = tuple[int, Mapping[Any, int]]
"""The clock of an arrival, and the newest event time of each of its partitions."""


def steps(
    strategy: PerPartition, arrivals: Sequence[Arrived]
) -> list[tuple[int | None, str | None]]:
    """Return the watermark and the state after each arrival."""
    watermark, state = None, None
    found: list[tuple[int | None, str | None]] = []
    for clock, newest in arrivals:
        observed = json.dumps([[part, str(time)] for part, time in newest.items()])
        watermark, state = strategy.advance(state, watermark, observed if newest else None, clock)
        found.append((watermark, state))
    return found


def of_partitions(*arrivals: Arrived) -> list[int | None]:
    """Return the watermarks after arrivals, with a bound of 10 and an idle time of 100."""
    strategy = PerPartition("sensor", "10 microseconds", idle="100 microseconds")
    return [watermark for watermark, _ in steps(strategy, arrivals)]


def test_the_slowest_partition_holds_the_watermark() -> None:
    assert of_partitions((0, {"a": 50, "b": 30}), (1, {"a": 90}), (2, {"b": 60})) == [20, 20, 50]


def test_events_without_a_partition_form_one_partition() -> None:
    found = of_partitions((0, {"a": 50, None: 30}), (1, {"null": 25}), (2, {None: 70}))
    assert found == [20, 20, 20]


def test_an_idle_partition_does_not_hold_the_watermark() -> None:
    #  clock   0        60       99       100       101
    #  a       50       500               900
    #  b       30  ......................idle......  40
    assert of_partitions(
        (0, {"a": 50, "b": 30}), (60, {"a": 500}), (99, {}), (100, {"a": 900}), (101, {"b": 40})
    ) == [20, 20, 20, 890, 890]


def test_a_heartbeat_lets_a_partition_become_idle() -> None:
    assert of_partitions((0, {"b": 30}), (60, {"a": 500}), (120, {})) == [20, 20, 490]


def test_a_partition_that_resumes_counts_again() -> None:
    back = (101, {"b": 950})
    assert of_partitions(
        (0, {"a": 50, "b": 30}), (100, {"a": 900}), back, (102, {"a": 999}), (103, {"b": 980})
    ) == [20, 890, 890, 940, 970]


def test_the_newest_partition_decides_if_all_are_idle() -> None:
    """The order in which they became idle makes no difference."""
    for first, second in (("a", "b"), ("b", "a")):
        newest = {"a": 500, "b": 30}
        arrivals = ((0, {first: newest[first]}), (50, {second: newest[second]}), (150, {}))
        assert of_partitions(*arrivals)[-1] == 490


def test_a_partition_with_waiting_events_is_not_idle() -> None:
    strategy = PerPartition("sensor", "10 microseconds", idle="100 microseconds")
    watermark, state = strategy.advance(None, None, '[["a","500"],["b","30"]]', 0)
    for clock in (60, 120, 180):
        # More events of `b` wait. An unknown partition that waits has no event time yet.
        observed = '[["a","500"],["b",null],["c",null]]'
        watermark, state = strategy.advance(state, watermark, observed, clock)
        assert watermark == 20
    assert state == '[["a",500,180],["b",30,180]]'
    assert strategy.advance(state, watermark, '[["a","500"]]', 280)[0] == 490


def test_a_new_partition_does_not_move_the_watermark_back() -> None:
    found = of_partitions((0, {"a": 500}), (1, {"b": 100}), (2, {"a": 800}), (3, {"b": 520}))
    assert found == [490, 490, 490, 510]


def test_the_state_drops_partitions_that_no_longer_matter() -> None:
    strategy = PerPartition("sensor", "10 microseconds", idle="100 microseconds")
    (_, first), (_, last) = steps(strategy, [(0, {"b": 30, None: 5, "a": 50}), (100, {"a": 900})])
    assert first == '[["a",50,0],["b",30,0],[null,5,0]]'
    assert last == '[["a",900,100]]'


def test_partitions_are_listed_from_the_one_that_holds_the_watermark_back() -> None:
    strategy = PerPartition("sensor", "10 microseconds", idle="100 microseconds")
    arrivals = [(0, {"b": 900, None: 30}), (20, {None: 50}), (60, {"a": 70}), (100, {})]
    watermark, state = steps(strategy, arrivals)[-1]
    assert watermark == 40
    assert strategy.list_partitions(state, 100) == [
        Partition(None, 40, 20, idle=False),
        Partition("a", 60, 60, idle=False),
        Partition("b", 890, 0, idle=True),
    ]
    assert strategy.list_partitions(None, 0) == []


def test_the_state_keeps_an_idle_partition_that_is_ahead() -> None:
    """Its next event, however old, does not set it back."""
    arrivals = ((0, {"a": 900, "b": 50}), (99, {"b": 60}), (100, {}), (101, {"a": 70}))
    assert of_partitions(*arrivals, (102, {"b": 890})) == [40, 50, 50, 50, 880]


def remembering(arrivals: Sequence[Arrived]) -> list[int | None]:
    """Return the watermarks, computed from the full history of every partition."""
    newest: dict[Any, int] = {}
    heard: dict[Any, int] = {}
    watermark, found = None, []
    for clock, brought in arrivals:
        for part, time in brought.items():
            newest[part], heard[part] = max(time, newest.get(part, time)), clock
        active = [newest[part] for part in newest if clock - heard[part] < 100]
        if newest:
            reached = (min(active) if active else max(newest.values())) - 10
            watermark = reached if watermark is None else max(watermark, reached)
        found.append(watermark)
    return found


def test_dropped_partitions_never_change_the_watermark() -> None:
    chance = random.Random(1)
    for _ in range(300):
        clock, arrivals = 0, []
        for _ in range(30):
            clock += chance.choice([0, 1, 30, 60, 100, 130])
            parts = chance.sample("abcd", chance.choice([0, 0, 1, 1, 2]))
            arrivals.append((clock, {p: clock + chance.randrange(-200, 100) for p in parts}))
        assert of_partitions(*arrivals) == remembering(arrivals)


def test_idleness_depends_on_the_clock_and_not_on_arrivals() -> None:
    arrivals = [(n, {"a": 50 + n}) for n in range(1, 99)]
    assert {*of_partitions((0, {"b": 30}), *arrivals)} == {20}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sensor", "-1 hour"), r"bound of a watermark must not be negative \(got '-1 hour'"),
        (("sensor", "1 hour", "0 seconds"), r"idle time .* must be greater than zero \(got '0 s"),
        (("sensor", "1 hour", "soon"), r"'soon' is not a duration"),
    ],
)
def test_an_invalid_partition_watermark_is_refused(
    arguments: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        PerPartition(*arguments)


def test_a_punctuated_watermark_needs_an_expression() -> None:
    with pytest.raises(DefinitionError, match="must be a SQL expression that returns a timestamp"):
        Punctuated(" ")


def test_a_source_must_have_its_watermarks_column() -> None:
    columns = {"ts": "timestamp", "sensor": "string"}
    strategy = PerPartition("sensor", "1 hour")
    assert Source("s", columns, "ts", strategy).watermark.group_column == "sensor"
    with pytest.raises(DefinitionError, match="'s': its watermark uses the column 'shard',"):
        Source("s", columns, "ts", PerPartition("shard", "1 hour"))


def test_strategies_describe_themselves() -> None:
    strategy = PerPartition("sensor", "1 hour", idle="90 seconds")
    assert str(strategy) == (
        "minimum over sensor of newest event time - 1 hour, ignoring values that were idle "
        "for 90 seconds"
    )
    assert str(Punctuated("mark")) == "maximum of mark"
    assert str(Perfect()) == "none until the source ends"
    assert str(Manual()) == "set by the connector"
    assert str(BoundedOutOfOrderness("1 hour")) == "newest event time - 1 hour"
    assert str(MonotonicTimestamps()) == "newest event time"


def test_the_documented_custom_strategy_works() -> None:
    assert Watermark.__doc__ is not None
    text = Watermark.__doc__.partition("Example:\n")[2]
    names: dict[str, Any] = {"Watermark": Watermark, "forward": forward, "F": F}
    exec("from __future__ import annotations\n" + dedent(text), names)
    strategy: Watermark = names["OneArrivalBehind"]()
    assert strategy.group_column is None
    assert after(strategy, 5, 9, None, 7, 12) == [None, 5, 9, 9, 9]
    assert Source("s", {"ts": "timestamp"}, "ts", strategy).watermark is strategy
