"""Tests that windows computed from shared slices equal windows that are counted separately."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest, minutes
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import INFINITY
from tidemark.compute import slices, windowing
from tidemark.compute.events.prepare import prepare_rows
from tidemark.define import aggregates as agg
from tidemark.define.aggregates.combiner import SLACK
from tidemark.define.helper_columns import ADMITTED, HAPPENED_AT, SLOT, VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Calendar, Cumulating, Session, Sliding, Tumbling, Window
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.kinds import Cause, Increment, Replacement
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

SECOND = 1_000_000
ARRIVALS = 8
END = TimelinePosition(ARRIVALS, INFINITY, T0 + ARRIVALS * MINUTE)

EXACT = {
    "n": agg.count(),
    "some": agg.count(where="price > 0.5"),
    "total": agg.sum("price"),
    "least": agg.min("price"),
    "most": agg.max("value"),
    "average": agg.mean("price"),
    "begun": agg.first("value"),
    "ended": agg.last("value"),
    "found": agg.collect("price", max_values=5),
    "often": agg.top_k("price", 2),
}
SKETCHES = {
    "about": agg.approx_count_distinct("price"),
    "different": agg.count_distinct("price"),
    "median": agg.quantile("value", 0.5),
}
NEAR = {"sum": agg.sum("value"), "mean": agg.mean("value"), "spread": agg.variance("value")}


ROLLING = replace(
    PER_MINUTE,
    name="rolling",
    aggregates=EXACT | SKETCHES | NEAR,
    deduplicate=Deduplicate(("sensor", "value"), within="10 minutes"),
)
FEW = replace(
    PER_MINUTE,
    name="few",
    aggregates={"n": agg.count(), "total": agg.sum("price"), "ended": agg.last("value")},
)

EVENLY, UNEVENLY = Sliding("6 minutes", "1 minute"), Sliding("5 minutes", "2 minutes", "30 seconds")
GROWING = Cumulating("6 minutes", "2 minutes", "-90 seconds")
SHARING = (EVENLY, UNEVENLY, Sliding("7 minutes", "3 minutes", "-90 seconds"), GROWING)
ALONE = (
    Sliding("5 minutes", "3 minutes"),
    Sliding("2 minutes", "2 minutes"),
    Sliding("1 minute", "3 minutes"),
    Cumulating("4 minutes", "4 minutes"),
)


def arrivals() -> list[list[Event]]:
    """Return arrivals a minute apart, with events up to twelve minutes old.

    Events lie on the bounds of slices and between them, and some are sent again.
    """
    chance = random.Random(23)
    made: list[list[Event]] = []

    def event(now: int) -> Event:
        age = chance.choice([0, 1, 1, 1, 2, 3, 5, 9, 12]) * MINUTE
        beside = chance.choice([0, 0, -1, 1, 30 * SECOND, chance.randrange(-MINUTE, MINUTE)])
        ts = None if chance.random() < 0.03 else now - age + beside
        return Event(ts, chance.choice(["a", "b", None]), round(chance.random(), 2))

    for number in range(ARRIVALS):
        fresh = [event(T0 + number * MINUTE) for _ in range(40)]
        earlier = [e for came in made for e in came] + fresh
        made.append([*fresh, *chance.sample(earlier, 6)])
    return made


@pytest.fixture(scope="module")
def log(shared: Warehouse) -> Log:
    """Return a log in which each arrival has late, too-late and duplicate events."""
    ingest(shared, READINGS, arrivals())
    return Log(shared, READINGS)


Rows = dict[tuple[Any, ...], dict[str, Any]]


def by_place(rows: DataFrame, keys: list[str]) -> Rows:
    found = [r.asDict(recursive=True) for r in rows.collect()]
    placed = {tuple(row.pop(k) for k in keys): row for row in found}
    assert len(placed) == len(found), "two rows of one place"
    return placed


def near(one: Any, other: Any) -> bool:  # noqa: ANN401
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[k], other[k]) for k in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def check_same(got: Rows, want: Rows, *without: str) -> None:
    """Compare rows exactly, except for sums of doubles."""
    assert want
    assert got.keys() == want.keys()
    for place, row in want.items():
        for column in row.keys() - {SLACK, *without}:
            one, other = got[place][column], row[column]
            assert near(one, other) if column in NEAR else one == other, (place, column)


def types(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema}


def check_partials(sliced: DataFrame, plain: DataFrame, transform: WindowedTransform) -> Rows:
    """Compare partials, except for the bytes of sketches, and return them by their place."""
    assert types(sliced) == types(plain)
    place = [*transform.by_window, VERDICT, ADMITTED, SLOT]
    want = by_place(plain, place)
    check_same(by_place(sliced, place), want, *SKETCHES)
    return want


@pytest.mark.parametrize("window", mostly_nightly(SHARING), ids=str)
def test_slices_give_the_partials_of_separately_counted_windows(log: Log, window: Window) -> None:
    transform = replace(ROLLING, window=window)
    sliced = windowing.count_scope(log, transform, Scope.from_coverage(Coverage(END)))
    plain = windowing.aggregate_events(
        windowing.classify_scope(log, transform, Scope(-1, ARRIVALS)), transform, log
    )
    found = check_partials(sliced, plain, transform)
    assert {verdict for *_, verdict, _, _ in found} == {0, 1, 2, 3, 4}
    # A sketch of sketches has other bytes, but the same result.
    at = windowing.as_of(Coverage(END))
    rows = [
        by_place(windowing.finish_windows(parts, transform, log, at), transform.by_window)
        for parts in (sliced, plain)
    ]
    check_same(rows[0], rows[1])


@pytest.mark.parametrize("complete", mostly_nightly([False, True]))
@pytest.mark.parametrize("window", [UNEVENLY, GROWING], ids=str)
def test_only_windows_that_start_in_the_ranges_are_computed(
    log: Log, window: Window, complete: bool
) -> None:
    transform = replace(FEW, window=window)
    ranges = (minutes(-6, -3), minutes(1, 4))
    sliced = windowing.count_scope(
        log, transform, Scope.from_coverage(Coverage(END), ranges, complete=complete)
    )
    events = windowing.classify_scope(
        log, transform, Scope(-1, ARRIVALS, ranges, complete=complete)
    )
    found = check_partials(sliced, windowing.aggregate_events(events, transform, log), transform)
    admitted = {verdict for *_, verdict, admitted, _ in found if admitted}
    assert admitted == ({0, 1, 2} if complete else {0, 1})


@pytest.mark.parametrize(
    "trigger",
    mostly_nightly(
        [
            Trigger(early=Every("2 minutes"), late=Every("3 minutes")),
            Trigger(early=Count(3)),
            Trigger(early=EachArrival()),
            Trigger(early=EachArrival(), late=Every("90 seconds")),
            Trigger(late=Count(2)),
        ],
        2,
    ),
    ids=str,
)
def test_slices_assign_events_to_the_same_firing_slots(log: Log, trigger: Trigger) -> None:
    transform = replace(FEW, window=EVENLY, trigger=trigger)
    sliced = windowing.count_scope(log, transform, Scope.from_coverage(Coverage(END)))
    plain = windowing.aggregate_events(
        windowing.classify_scope(log, transform, Scope(-1, ARRIVALS)), transform, log
    )
    assert len({slot for *_, slot in check_partials(sliced, plain, transform)}) > 4


def at(arrival: int) -> TimelinePosition:
    return TimelinePosition(arrival, None, T0 + arrival * MINUTE)


AHEAD = Coverage(
    at(2), (BackfilledRange(*minutes(-4, 1), at(5)), BackfilledRange(*minutes(1, 3), at(4)))
)
"""Backfills have counted more arrivals in some windows than in the others."""


@pytest.mark.parametrize("before", [Coverage(at(2)), AHEAD], ids=["plain", "ahead"])
def test_an_increment_counts_the_events_that_each_window_lacks(log: Log, before: Coverage) -> None:
    transform = replace(FEW, window=EVENLY)
    marker = Increment(before=before, after=before.advance_to(at(6)))
    plain = windowing.aggregate_events(
        windowing.classify_scope(log, transform, marker.counted_scope()), transform, log
    )
    check_partials(windowing.count_scope(log, transform, marker.counted_scope()), plain, transform)


@pytest.mark.parametrize(
    "ranges",
    mostly_nightly(
        [
            ((),),
            ((minutes(-3, 2),),),
            ((minutes(-3, 0),),),
            ((minutes(-9, -5),),),
            ((minutes(-9, -1),),),
        ],
        2,
    ),
    ids=["all", "in two covers", "in one cover", "in none", "across a bound"],
)
def test_a_backfill_counts_each_window_through_its_own_position(log: Log, ranges: Ranges) -> None:
    transform = replace(FEW, window=EVENLY)
    # The computation before range backfills treated all windows of a range alike.
    events = windowing.classify_scope(log, transform, Scope(-1, AHEAD.newest_arrival, ranges))
    seen = events.where(F.col("arrival") <= AHEAD.position_column("arrival"))
    plain = windowing.aggregate_events(seen, transform, log)
    marker = Replacement(cause=Cause.BACKFILL, after=AHEAD, ranges=ranges)
    check_partials(
        windowing.count_scope(log, transform, Scope.from_coverage(AHEAD, ranges)), plain, transform
    )
    check_partials(windowing.count_scope(log, transform, marker.counted_scope()), plain, transform)
    covered = windowing.aggregate_events(
        windowing.classify_scope(log, transform, marker.counted_scope()), transform, log
    )
    check_partials(covered, plain, transform)


def test_on_time_events_share_one_row_per_slice_and_key(log: Log) -> None:
    transform = replace(FEW, window=EVENLY)
    place = ["correlation_id", "sensor", F.unix_micros(HAPPENED_AT).alias("time")]
    worst = (
        windowing.classify_scope(log, transform, Scope(-1, ARRIVALS))
        .groupBy(*place)
        .agg(F.max(VERDICT))
    )
    punctual = [r for r in worst.collect() if r[f"max({VERDICT})"] == 0]
    read = prepare_rows(log, transform, -1, ARRIVALS)
    rows = read.withColumn(
        HAPPENED_AT, transform.source.valid_event_time(F.unix_micros("arrived_at"))
    )
    parts = slices.aggregate_slices(rows, transform, EVENLY, by_arrival=False).where(
        "arrival IS NULL"
    )
    assert sum(r["events"] for r in parts.collect()) == len(punctual) > ARRIVALS
    assert parts.count() == len({(r["time"] // MINUTE, r["sensor"]) for r in punctual})


def test_little_overlap_and_count_triggers_share_no_slices() -> None:
    for window in (*SHARING, *ALONE, Tumbling("1 minute"), Session("1 minute"), Calendar("day")):
        transform = replace(FEW, window=window)
        assert (slices.shared_slices(transform) == window) == (window in SHARING)
        for trigger in (Trigger(early=Count(2)), Trigger(late=Count(2))):
            assert slices.shared_slices(replace(transform, trigger=trigger)) is None
