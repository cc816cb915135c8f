"""Tests of corrections, which add too-late events to just the windows that lack them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers.data.runs import PLACES, killed, published_through, run_all
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    ingest,
    minutes,
    published,
    reference,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import parse_instant
from tidemark.base.settings import Settings
from tidemark.define.windows import Session, Sliding, Window
from tidemark.run.correction import Correction
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.commits.ranges import merge_ranges
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

ARRIVALS = some_arrivals()
VALUES = ("n", "high", "total", "average", "least", "most", "events", "late_events")
Rows = dict[tuple[int, str | None], dict[str, Any]]


def changed(old: Rows, new: Rows) -> set[tuple[int, str | None, str]]:
    """Return the values that differ."""
    return {
        (*window, column)
        for window in old.keys() | new.keys()
        for column in VALUES
        if old.get(window, {}).get(column) != new.get(window, {}).get(column)
    }


def listed(done: Correction) -> set[tuple[int, str | None, str]]:
    return {(parse_instant(c.window_start), c.keys["sensor"], c.column) for c in done.changes}


def rows(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    found = warehouse.read_frame(table).drop("commit_number", "as_of").collect()
    return sorted((tuple(r) for r in found), key=str)


def test_touching_ranges_are_merged() -> None:
    assert merge_ranges([(20, 30), (0, 10), (10, 20), (40, 50)]) == ((0, 30), (40, 50))
    assert merge_ranges([]) == ()


def test_the_nearest_of_many_ranges_are_merged() -> None:
    ranges = [(0, 1), (5, 6), (7, 8), (20, 21), (22, 23)]
    assert merge_ranges(ranges, max_ranges=3) == ((0, 1), (5, 8), (20, 23))
    assert merge_ranges(ranges, max_ranges=1) == ((0, 23),)
    assert len(merge_ranges((100 * i, 100 * i + 1) for i in range(5000))) == 100


def test_a_correction_counts_too_late_events_and_reports_changes(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "corrected")
    run_all(logged, asset, 4)
    streamed, complete = reference(ARRIVALS), reference(ARRIVALS, complete=True)
    late = rows(logged, asset.late_table)
    done = correct(logged, asset)
    assert done is not None
    assert published(logged, asset) == complete
    assert listed(done) == changed(streamed, complete)
    assert done.total == len(done.changes)
    assert done.windows == len({(c.window_start, str(c.keys)) for c in done.changes})
    assert done.facts.mode == "correction"
    counts = {
        (parse_instant(c.window_start), c.keys["sensor"]): (c.before, c.after)
        for c in done.changes
        if c.column == "n"
    }
    assert counts == {
        w: (str(streamed[w]["n"]) if w in streamed else None, str(complete[w]["n"]))
        for w in complete
        if streamed.get(w, {}).get("n") != complete[w]["n"]
    }
    # The late table is unchanged, and no window lacks events any more.
    assert rows(logged, asset.late_table) == late
    assert logged.read_frame(asset.late_loss_table).isEmpty()
    assert correct(logged, asset) is None


def test_a_correction_writes_only_windows_that_lack_events(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "just_these")
    run_all(logged, asset, 4)
    done = correct(logged, asset)
    assert done is not None
    written = logged.read_frame(asset.published_table).where(
        f"commit_number = {done.facts.commit_number}"
    )
    lost = changed(reference(ARRIVALS), reference(ARRIVALS, complete=True))
    starts = {r[0] for r in written.select(F.unix_micros("window_start")).collect()}
    assert starts == {start for start, _, _ in lost}
    assert len(starts) < len({start for start, _ in reference(ARRIVALS)})


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_events_after_a_correction_are_classified_as_before(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    run_all(warehouse, PER_MINUTE, 4)
    backfill(warehouse, PER_MINUTE, *minutes(-3, 1))
    first = correct(warehouse, PER_MINUTE)
    assert first is not None
    ingest(warehouse, READINGS, ARRIVALS[3:])
    run_all(warehouse, PER_MINUTE, 2)
    assert State(warehouse, PER_MINUTE).read_last_commit().after.at.arrival == len(ARRIVALS)
    between = published(warehouse, PER_MINUTE)
    complete = reference(ARRIVALS, complete=True)
    second = correct(warehouse, PER_MINUTE)
    assert second is not None
    assert published(warehouse, PER_MINUTE) == complete
    assert listed(second) == changed(between, complete)
    assert correct(warehouse, PER_MINUTE) is None


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_correction_takes_in_no_new_arrival(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:4], ends=False)
    incremental(warehouse, PER_MINUTE)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    backfill(warehouse, PER_MINUTE, *minutes(0, 3))
    stood = State(warehouse, PER_MINUTE).read_last_commit().after
    correct(warehouse, PER_MINUTE)
    assert State(warehouse, PER_MINUTE).read_last_commit().after == stood
    run_all(warehouse, PER_MINUTE, 4)
    correct(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS, complete=True)


# Many runs.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "window"),
    mostly_nightly(
        [("session", Session("20 seconds")), ("sliding", Sliding("3 minutes", "1 minute"))]
    ),
)
def test_corrected_sliding_and_session_windows_equal_a_complete_backfill(
    logged: Warehouse, name: str, window: Window
) -> None:
    asset = replace(PER_MINUTE, name=name, window=window, accumulation="accumulating")
    filled = renamed(asset, f"{name}_filled")
    # The means depend on the order of addition.
    asset, filled = (
        replace(a, aggregates={n: x for n, x in a.aggregates.items() if n != "average"})
        for a in (asset, filled)
    )
    run_all(logged, asset, 4)
    backfill(logged, filled, late_events="include")
    before, want = rows(logged, asset.published_table), rows(logged, filled.published_table)
    done = correct(logged, asset)
    assert done is not None
    assert rows(logged, asset.published_table) == want != before
    assert rows(logged, asset.panes_table) == rows(logged, filled.panes_table)
    same = len(set(before) & set(want))
    assert max(len(before), len(want)) - same <= done.windows
    assert correct(logged, asset) is None


# Once for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("where", mostly_nightly(PLACES[1:]))
def test_a_killed_correction_is_completed_by_the_next_run(
    logged: Warehouse, engine: Settings, where: str
) -> None:
    name = f"killed_{where}"
    asset = renamed(PER_MINUTE, name)
    run_all(logged, asset, None)
    assert killed(engine, logged, name, "correct", where)
    assert published_through(logged, asset) == 0
    assert correct(logged, asset) is None
    assert published_through(logged, asset) == 1
    assert published(logged, asset) == reference(ARRIVALS, complete=True)


def test_an_asset_that_never_ran_has_nothing_to_correct(logged: Warehouse) -> None:
    assert correct(logged, renamed(PER_MINUTE, "never_ran")) is None


def test_commit_info_of_many_ranges_stays_small() -> None:
    ranges = merge_ranges((10**15 + 10**9 * i, 10**15 + 10**9 * i + 1) for i in range(10_000))
    assert len(json.dumps(ranges)) < 5_000
