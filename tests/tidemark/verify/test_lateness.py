"""Tests of observed lateness: lags behind earlier events, and the events a bound would lose."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from helpers.data.support import MINUTE, READINGS, T0, Event, ingest, some_arrivals
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.bounds import find_bulk_loads, measure_lags

HOUR, DAY = 60 * MINUTE, 1_440 * MINUTE


def test_lag_is_measured_from_earlier_arrivals(warehouse: Warehouse) -> None:
    # arrival   0          1                  2
    # minute    10, 2      11, 7, none        4
    # lag        0, 0       0, 3              7
    times = [[10, 2], [11, 7, None], [4]]
    arrivals = [[Event(t and T0 + t * MINUTE, "a", 0.0) for t in ts] for ts in times]
    ingest(warehouse, READINGS, arrivals)
    found = measure_lags(warehouse, READINGS, target=0.4)
    assert found.no_event_time == 1
    lags = found.total
    assert lags.events == 5
    assert lags.percentiles[50.0] == 0
    assert lags.percentiles[90.0] == lags.percentiles[100.0] == 7 * MINUTE
    lost = {c.bound // MINUTE: c.lost for c in lags.candidates if c.bound >= MINUTE}
    assert lost == {1: 2, 2: 2, 3: 1, 5: 1, 10: 0}
    # No event precedes the first arrival, so its events have no lag.
    assert found.bulk_loads == (0,)
    assert found.live is not None
    assert found.live.events == 3
    assert found.live.percentiles[50.0] == 3 * MINUTE
    assert found.live.recommended is not None
    assert found.live.recommended.bound == 3 * MINUTE
    assert found.live.recommended.share == pytest.approx(1 / 3)


def test_a_candidate_bound_loses_events_behind_its_watermark(warehouse: Warehouse) -> None:
    arrivals = some_arrivals(count=6, size=20)
    ingest(warehouse, READINGS, arrivals)
    found = {c.bound: c.lost for c in measure_lags(warehouse, READINGS).total.candidates}
    for bound in ("0 minutes", "1 minute", "3 minutes"):
        source = replace(READINGS, name=f"bound_{bound[0]}", watermark=BoundedOutOfOrderness(bound))
        ingest(warehouse, source, arrivals)
        behind = Log(warehouse, source).read_events(-1, 5).where("ts < watermark").count()
        assert found[parse_duration(bound)] == behind


def test_a_log_without_events_is_refused(warehouse: Warehouse) -> None:
    Log(warehouse, READINGS).ensure_tables()
    with pytest.raises(DataError, match="no events with an event time yet"):
        measure_lags(warehouse, READINGS)


def test_a_target_must_be_a_share(warehouse: Warehouse) -> None:
    with pytest.raises(DefinitionError, match=r"at least 0 and less than 1 \(got 5\)"):
        measure_lags(warehouse, READINGS, target=5)


def arrivals_of(facts: Sequence[tuple[int, int, int, int]]) -> list[Arrival]:
    """Return arrivals from their processing time, number of events, first and last event time."""
    return [
        Arrival(n, at, None, None, rows, first, last, 0, "{}")
        for n, (at, rows, first, last) in enumerate(facts)
    ]


def some_history(rng: Random, now: int) -> list[tuple[int, int, int, int]]:
    """Return one to thirty files of history, written within seconds of each other."""
    begin, files = now - 1_000 * DAY, rng.randint(1, 30)
    span = rng.choice([20, 30]) * DAY
    return [
        (now + n, rng.randint(20_000, 90_000), begin + n * span, begin + (n + 1) * span)
        for n in range(files)
    ]


def some_live(rng: Random, now: int, count: int) -> list[tuple[int, int, int, int]]:
    """Return live arrivals of 20 to 60 events, in which some events are very late."""
    every, found = rng.choice([MINUTE, HOUR, DAY]), list[tuple[int, int, int, int]]()
    for n in range(1, count + 1):
        end = now + n * every
        late = rng.choice([0, 0, 0, 10 * DAY])
        found.append((end + MINUTE, rng.randint(20, 60), end - every - late, end))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_bulk_loads_are_recognized_among_live_arrivals(seed: int) -> None:
    rng = Random(seed)
    history, live = some_history(rng, T0), some_live(rng, T0 + DAY, rng.randint(2, 40))
    timeline = arrivals_of([*history, *live])
    assert find_bulk_loads(timeline) == {*range(len(history))}


@pytest.mark.parametrize("seed", range(20))
def test_older_history_that_arrives_later_is_a_bulk_load(seed: int) -> None:
    rng = Random(seed)
    facts = some_live(rng, T0, 20)
    at, rows = facts[9][0] + 1, 20_000
    facts.insert(10, (at, rows, T0 - 3_000 * DAY, T0 - 1_000 * DAY))
    assert find_bulk_loads(arrivals_of(facts)) == {0, 10}


def test_files_of_one_kind_are_measured_although_they_arrived_at_once() -> None:
    files = [(T0 + n, 100, T0 + n * HOUR, T0 + (n + 1) * HOUR) for n in range(100)]
    assert find_bulk_loads(arrivals_of(files)) == {0}


def test_history_does_not_change_the_recommended_bound(warehouse: Warehouse) -> None:
    history = [Event(T0 - n * MINUTE, "a", 0.0) for n in range(500)]
    # Each live arrival has one event of ten that is two minutes late.
    live = [
        [Event(T0 + n * MINUTE, "a", 0.0)] * 9 + [Event(T0 + (n - 3) * MINUTE, "a", 0.0)]
        for n in range(1, 5)
    ]
    ingest(warehouse, READINGS, [history, *live])
    found = measure_lags(warehouse, READINGS, target=0.05)
    assert found.live is not None
    assert found.live.events == 40
    assert found.live.recommended is not None
    assert found.live.recommended.bound == 2 * MINUTE
    assert found.total.recommended is not None
    assert found.total.recommended.bound == 0


def test_history_alone_recommends_no_bound(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, [[Event(T0 - n * MINUTE, "a", 0.0) for n in range(10)]])
    found = measure_lags(warehouse, READINGS)
    assert found.live is None
    assert found.bulk_loads == (0,)
