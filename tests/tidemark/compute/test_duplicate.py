"""Tests of deduplication: an event that is sent again counts once, in any run."""

import random
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from helpers.data.runs import run_all
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    ingest,
    minutes,
    published,
    reference,
    renamed,
    some_arrivals,
)
from tidemark.base import thresholds
from tidemark.base.errors import DefinitionError
from tidemark.compute.events.prepare import mark_duplicates
from tidemark.define import classification
from tidemark.define.helper_columns import ADMITTED, VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.define.uniqueness import MARK, Deduplicate
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

HORIZON = 3 * MINUTE
ONCE = replace(PER_MINUTE, deduplicate=Deduplicate(("sensor", "value"), within="3 minutes"))


def sent_again(seed: int = 11) -> list[list[Event]]:
    """Return arrivals with copies of earlier events, some of them moved in time.

    Moved copies are within the horizon, exactly at it, or beyond it.
    """
    chance = random.Random(seed)
    arrivals: list[list[Event]] = []
    for events in some_arrivals(seed):
        earlier = [e for came in arrivals for e in came] + events
        copies = chance.sample(earlier, 12)
        shifts = [0, 0, 0, HORIZON, -HORIZON, HORIZON + 1, -HORIZON - 1, 2 * HORIZON]
        moved = [e if e.ts is None else replace(e, ts=e.ts + chance.choice(shifts)) for e in copies]
        arrivals.append([*events, *moved])
    return arrivals


def duplicates(arrivals: list[list[Event]]) -> set[tuple[int, int]]:
    """Return the arrival and position of each event that is a duplicate by the rule."""
    found: set[tuple[int, int]] = set()
    seen: dict[tuple[str, float], list[int]] = {}
    for number, events in enumerate(arrivals):
        for position, e in enumerate(events):
            if e.ts is None or e.key is None or e.value is None:
                continue
            before = seen.setdefault((e.key, e.value), [])
            if any(abs(e.ts - t) <= HORIZON for t in before):
                found.add((number, position))
            before.append(e.ts)
    return found


ARRIVALS = sent_again()
WANT = reference(ARRIVALS, left_out=duplicates(ARRIVALS))


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    """Return a warehouse with duplicates in its event log. Each test uses its own asset name."""
    ingest(shared, READINGS, ARRIVALS)
    return shared


def named(name: str) -> WindowedTransform:
    return renamed(ONCE, f"{name}_{random.SystemRandom().randrange(1 << 32):x}")


def test_the_log_has_duplicates_in_every_arrival() -> None:
    counted = reference(ARRIVALS)
    assert counted != WANT
    runs = {number for number, _ in duplicates(ARRIVALS)}
    assert len(duplicates(ARRIVALS)) > 20
    assert len(runs) == len(ARRIVALS)


@pytest.mark.parametrize("limit", [pytest.param(1, marks=pytest.mark.slow), None])
def test_runs_of_any_size_count_each_event_once(logged: Warehouse, limit: int | None) -> None:
    asset = named(f"cut_{limit}".lower())
    told = sum(facts.duplicate for facts in run_all(logged, asset, limit))
    assert told == len(duplicates(ARRIVALS))
    assert published(logged, asset) == WANT


def test_backfills_count_each_event_once(logged: Warehouse) -> None:
    asset = named("filled")
    facts = backfill(logged, asset)
    assert facts.duplicate == len(duplicates(ARRIVALS))
    assert facts.events == sum(map(len, ARRIVALS))
    assert published(logged, asset) == WANT
    # The originals of copies near the bounds of a range may lie outside of it.
    for first, last in [(-10, 2), (3, 20), (2, 3)]:
        backfill(logged, asset, *minutes(first, last))
    assert published(logged, asset) == WANT


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_backfill_between_runs_counts_each_event_once(logged: Warehouse) -> None:
    asset = named("in_between")
    incremental(logged, asset, limit=3)
    backfill(logged, asset, *minutes(-1, 3))
    run_all(logged, asset, 2)
    assert published(logged, asset) == WANT
    assert check_parity(logged, asset).is_equal
    assert check_parity(logged, asset, *minutes(1, 3)).is_equal


def test_complete_results_and_the_late_table_exclude_duplicates(logged: Warehouse) -> None:
    asset = named("complete")
    left_out = duplicates(ARRIVALS)
    run_all(logged, asset, 3)
    late = logged.read_frame(asset.late_table).select("arrival", "position").collect()
    assert late
    assert not left_out & {(r.arrival, r.position) for r in late}
    lost = logged.read_frame(asset.late_loss_table).agg(F.sum("lost_events")).collect()[0][0]
    backfill(logged, asset, late_events="include")
    complete = reference(ARRIVALS, complete=True, left_out=left_out)
    assert published(logged, asset) == complete
    assert lost == sum(complete[w]["n"] - WANT.get(w, {"n": 0})["n"] for w in complete)


def test_the_state_counts_duplicates(logged: Warehouse) -> None:
    asset = named("counted")
    incremental(logged, asset)
    rows = State(logged, asset).read_partials().where(F.col(VERDICT) == classification.DUPLICATE)
    assert rows.agg(F.sum("events")).collect()[0][0] == len(duplicates(ARRIVALS))
    assert rows.where(ADMITTED).isEmpty()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_reads_files_only_within_the_horizon(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A few rows would come from memory, without the names of their files.
    monkeypatch.setattr(thresholds, "INLINE_ROWS", 0)
    old = [[Event(T0 + hour * 60 * MINUTE, "a", 0.5)] for hour in range(6)]
    for events in old:
        ingest(warehouse, READINGS, [events], ends=False)
    ingest(warehouse, READINGS, [[Event(T0 + 5 * 60 * MINUTE + HORIZON, "a", 0.5)]], ends=False)
    assert ONCE.deduplicate is not None
    rows = mark_duplicates(Log(warehouse, READINGS), ONCE.deduplicate, 5, 6)
    assert [r[MARK] for r in rows.collect()] == [True]
    assert len(rows.inputFiles()) == 2
    assert len(warehouse.read_frame(READINGS.log_table).inputFiles()) == 7


def test_an_unknown_deduplication_column_is_named() -> None:
    with pytest.raises(
        DefinitionError, match="deduplicate uses the column 'event_id', which is not among the col"
    ):
        replace(PER_MINUTE, deduplicate=Deduplicate("event_id", within="1 day"))


def test_an_invalid_deduplication_is_refused() -> None:
    with pytest.raises(DefinitionError, match="must name at least one column"):
        Deduplicate((), within="1 day")
    with pytest.raises(DefinitionError, match="must not be negative \\(got '-1 day'"):
        Deduplicate("id", within="-1 day")
    assert str(Deduplicate(("a", "b"), within="1 day")) == "a, b within 1 day"


def test_a_function_that_drops_the_duplicate_mark_is_refused(logged: Warehouse) -> None:
    asset = replace(named("dropped"), function=lambda rows: rows.drop(MARK))
    with pytest.raises(DefinitionError, match=f"has no column '{MARK}'"):
        incremental(logged, asset)
