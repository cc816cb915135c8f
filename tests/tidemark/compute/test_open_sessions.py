"""Tests that a run of sessions reads only those that can still change."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    filtered_by_nothing,
    ingest,
    renamed,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import INFINITY
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Every, Trigger
from tidemark.define.watermarks import Perfect
from tidemark.define.windows import Session
from tidemark.expect import matches_log
from tidemark.run.runner import backfill, incremental
from tidemark.store.commits.ranges import Ranges
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

# Many runs, each of which reads only open sessions.
pytestmark = pytest.mark.slow

SECOND = 1_000_000
GAP = 20 * SECOND
ARRIVALS = 8
LONG = range(3)
"""The arrivals during which one key sends events without a gap."""

VISITS = replace(PER_MINUTE, name="visits", window=Session("20 seconds"))


def arrivals() -> list[list[Event]]:
    """Return arrivals a minute apart, with events up to seven minutes old.

    One key's session continues for three arrivals.
    """
    chance = random.Random(3)

    def event(now: int) -> Event:
        age = chance.choice([20, 60, 120, 240, 420]) * SECOND
        return Event(now - int(chance.random() * age), chance.choice("abcd"), chance.random())

    made: list[list[Event]] = []
    for number in range(ARRIVALS):
        now = T0 + number * MINUTE
        steady = [Event(now - n * 15 * SECOND, "steady", 0.5) for n in range(4)]
        made.append([event(now) for _ in range(12)] + (steady if number in LONG else []))
    return made


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    ingest(shared, READINGS, arrivals(), ends=False)
    return shared


def rows(warehouse: Warehouse, asset: WindowedTransform) -> Counter[tuple[Any, ...]]:
    return Counter(
        map(
            tuple,
            warehouse.read_frame(asset.published_table).drop("commit_number", "as_of").collect(),
        )
    )


@pytest.mark.parametrize(
    "trigger",
    mostly_nightly([Trigger(), Trigger(early=EachArrival(), late=Every("2 minutes"))]),
    ids=["plain", "early"],
)
def test_closed_sessions_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch, logged: Warehouse, trigger: Trigger
) -> None:
    name = "early" if trigger.fires_early else "plain"
    asset = replace(VISITS, name=name, trigger=trigger, expectations=(matches_log(),))
    asked: list[Ranges] = []
    read = State.read_partials

    def noted(self: State, ranges: Ranges = ()) -> Any:  # noqa: ANN401
        asked.append(ranges)
        return read(self, ranges)

    monkeypatch.setattr(State, "read_partials", noted)
    state, begun = State(logged, asset), list[int | None]()
    for _ in range(ARRIVALS):
        asked.clear()
        facts = incremental(logged, asset, limit=1)
        assert facts is not None
        assert not facts.quarantined
        marker = state.read_commit(facts.commit_number)
        begun.append(marker.open_from)
        if facts.commit_number:
            assert marker.changing_from == begun[-2]
        if marker.changing_from is not None:
            # All sessions are read only for too-late events, which may join any session.
            bounded = ((marker.changing_from, INFINITY),)
            assert asked.count(bounded) >= 1
            assert facts.too_late or set(asked) == {bounded}
    late = asset.allowed_lateness + GAP
    for number in (2, ARRIVALS - 1):
        watermark = state.read_commit(number).after.at.watermark
        assert watermark is not None
        found = begun[number]
        assert found is not None
        assert found <= watermark - late
    # The long session holds the bound back to its start, until it closes.
    start = T0 - 45 * SECOND
    assert begun[2] is not None
    assert begun[2] <= start
    assert begun[-1] is not None
    assert begun[-1] > T0 + MINUTE
    whole = renamed(asset, f"{name}_whole")
    backfill(logged, whole)
    assert state.read_last_commit().open_from == State(logged, whole).read_last_commit().open_from
    assert rows(logged, asset) == rows(logged, whole)


@pytest.mark.nightly
def test_a_changed_definition_reads_all_sessions_once(logged: Warehouse) -> None:
    asset = renamed(VISITS, "redefined")
    incremental(logged, asset, limit=5)
    state = State(logged, asset)
    assert state.read_last_commit().open_from is not None
    changed = replace(asset, function=filtered_by_nothing)
    incremental(logged, changed, limit=1)
    assert state.read_last_commit().changing_from is None
    assert state.read_last_commit().open_from is not None


@pytest.mark.nightly
def test_all_sessions_stay_open_without_a_watermark(warehouse: Warehouse) -> None:
    source = replace(READINGS, watermark=Perfect())
    ingest(
        warehouse,
        source,
        [[Event(T0, "a", 0.5)], [Event(T0 - 5 * SECOND, "a", 0.5), Event(T0 - MINUTE, "a", 0.5)]],
    )
    asset = replace(VISITS, source=source)
    for _ in range(3):
        incremental(warehouse, asset, limit=1)
    found = warehouse.read_frame(asset.published_table).select("n").collect()
    assert sorted(r["n"] for r in found) == [1, 2]
