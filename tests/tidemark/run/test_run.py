"""Tests that the published rows do not depend on how a log is split, retried or backfilled."""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.runs import PLACES, killed, published_through, run_all
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
from helpers.suite.nightly import NIGHTLY
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.compute.lifecycle import session
from tidemark.define import aggregates as agg
from tidemark.define.helper_columns import ADMITTED
from tidemark.define.windows import Session
from tidemark.engine.connect import engine_address
from tidemark.run import compute as compute_step
from tidemark.run import window_rows
from tidemark.run.runner import backfill, incremental
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

ARRIVALS = some_arrivals()
SECOND = 1_000_000


@pytest.mark.parametrize(("limit", "runs"), [(1, 6), (2, 3), (None, 1)])
def test_runs_of_any_size_publish_the_same_rows(
    logged: Warehouse, limit: int | None, runs: int
) -> None:
    asset = renamed(PER_MINUTE, f"cut_{limit}".lower())
    assert len(run_all(logged, asset, limit)) == runs
    assert published(logged, asset) == reference(ARRIVALS)


def test_the_engine_computes_no_rows_if_no_window_fires(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [T0, T0 + 1, T0 + 3 * MINUTE, T0 + 3 * MINUTE + 1]
    ingest(warehouse, READINGS, [[Event(time, "a", 0.5)] for time in times])
    aggregates = {"n": agg.count(), "different": agg.count_distinct("value")}
    asset = replace(
        renamed(PER_MINUTE, "unfired"), aggregates=aggregates, accumulation="accumulating"
    )
    computed = list[str]()

    def note(module: ModuleType, name: str) -> None:
        compute_rows: Callable[..., object] = getattr(module, name)

        def compute_and_note(*args: object, **options: object) -> object:
            computed.append(name)
            return compute_rows(*args, **options)

        monkeypatch.setattr(module, name, compute_and_note)

    note(window_rows, "_compute_in_engine")
    note(compute_step, "compute_panes")
    by_run = list[list[str]]()
    while incremental(warehouse, asset, limit=1) is not None:
        by_run.append([*computed])
        computed.clear()
    both = ["_compute_in_engine", "compute_panes"]
    # The first run creates the tables, and the end of the source closes the last window.
    assert by_run == [both, [], both, [], both]
    assert check_parity(warehouse, asset).is_equal


def test_few_sessions_are_replayed_only_if_one_may_have_fired_early(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [T0, T0 + SECOND, T0 + 3 * MINUTE, T0 - SECOND, T0 + 6 * MINUTE]
    ingest(warehouse, READINGS, [[Event(time, "a", 0.5)] for time in times])
    asset = replace(
        renamed(PER_MINUTE, "few_sessions"),
        window=Session("20 seconds"),
        allowed_lateness=10 * MINUTE,
        accumulation="retracting",
    )
    replayed = list[int]()
    replay_clusters = session.replay_clusters

    def note(*args: Any, **options: Any) -> DataFrame:  # noqa: ANN401
        replayed.append(1)
        return replay_clusters(*args, **options)

    monkeypatch.setattr(session, "replay_clusters", note)
    counts = list[int]()
    while incremental(warehouse, asset, limit=1) is not None:
        counts.append(len(replayed))
        replayed.clear()
    # The first run also checks the definition. The fourth event extends a session that has fired:
    # its rows and its panes are replayed.
    assert counts[:4] == [1, 0, 0, 2]
    assert check_parity(warehouse, asset).is_equal


@pytest.mark.nightly
@pytest.mark.slow
def test_the_order_within_an_arrival_does_not_matter(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, [events[::-1] for events in ARRIVALS])
    run_all(warehouse, PER_MINUTE, 3)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


def test_a_backfill_publishes_the_same_rows_as_the_stream(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "filled")
    facts = backfill(logged, asset)
    want = reference(ARRIVALS)
    assert published(logged, asset) == want
    assert facts.windows == len(want)
    assert facts.on_time + facts.late == sum(row["events"] for row in want.values())
    assert facts.no_event_time == sum(e.ts is None for events in ARRIVALS for e in events)
    assert backfill(logged, asset).commit_number == facts.commit_number + 1
    assert published(logged, asset) == want


def test_backfills_of_ranges_add_up_to_the_whole(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "in_ranges")
    for first, last in [(-10, 2), (5, 20), (2, 5)]:
        backfill(logged, asset, *minutes(first, last))
    assert published(logged, asset) == reference(ARRIVALS)


def test_a_stream_continues_after_a_backfill_of_history(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    backfill(warehouse, PER_MINUTE, *minutes(-10, 2))
    ingest(warehouse, READINGS, ARRIVALS[3:])
    run_all(warehouse, PER_MINUTE, 3)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


def test_a_backfill_between_two_runs_counts_events_once(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "in_between")
    incremental(logged, asset, limit=2)
    backfill(logged, asset, *minutes(-1, 3))
    assert check_parity(logged, asset).is_equal
    incremental(logged, asset, limit=1)
    backfill(logged, asset, *minutes(2, 4))
    run_all(logged, asset, 1)
    want = reference(ARRIVALS)
    assert published(logged, asset) == want
    # Published rows may hide events that were stored twice, until a window fires again.
    stored = State(logged, asset).read_partials().where(ADMITTED).groupBy("window_start", "sensor")
    held = stored.agg(F.sum("events")).withColumn("window_start", F.unix_micros("window_start"))
    assert {(s, k): n for s, k, n in held.collect()} == {w: r["n"] for w, r in want.items()}


def test_a_stream_and_a_concurrent_backfill_reach_parity(
    logged: Warehouse, engine: Settings
) -> None:
    asset = renamed(PER_MINUTE, "at_once")
    other = Warehouse(SparkSession.builder.remote(engine_address(engine)).create(), *logged.place)
    side = threading.Thread(target=backfill, args=(other, asset, *minutes(0, 4)))
    side.start()
    run_all(logged, asset, 2)
    side.join()
    run_all(logged, asset, None)
    assert published(logged, asset) == reference(ARRIVALS)
    assert check_parity(logged, asset).is_equal


# Each run is a process of its own.
SLOW_PLACES = {*PLACES} - {"state", "published"}


@pytest.mark.parametrize(
    "where", [pytest.param(p, marks=NIGHTLY if p in SLOW_PLACES else []) for p in PLACES]
)
def test_a_killed_run_is_completed_by_the_next(
    logged: Warehouse, engine: Settings, where: str
) -> None:
    name = f"killed_before_{where}"
    assert killed(engine, logged, name, "incremental", where, 4)
    asset = renamed(PER_MINUTE, name)
    assert published_through(logged, asset) == -1
    run_all(logged, asset, 3)
    assert published(logged, asset) == reference(ARRIVALS)
    assert published_through(logged, asset) == 1


def test_the_complete_result_includes_too_late_events(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "complete")
    backfill(logged, asset)
    lost = {
        (r["start"], r["sensor"]): (r["lost_events"], r["n"], r["n_complete"])
        for r in logged.read_frame(asset.late_loss_table)
        .withColumn("start", F.unix_micros("window_start"))
        .collect()
    }
    streamed, complete = reference(ARRIVALS), reference(ARRIVALS, complete=True)
    assert lost == {
        w: (complete[w]["n"] - had, had or None, complete[w]["n"])
        for w in complete
        if (had := streamed.get(w, {"n": 0})["n"]) != complete[w]["n"]
    }
    assert lost
    backfill(logged, asset, late_events="include")
    assert published(logged, asset) == complete
    assert logged.read_frame(asset.late_loss_table).isEmpty()


def test_the_late_table_has_the_events_that_no_window_counts(logged: Warehouse) -> None:
    streamed, filled = renamed(PER_MINUTE, "late_streamed"), renamed(PER_MINUTE, "late_filled")
    run_all(logged, streamed, 4)
    backfill(logged, filled)
    columns = ["correlation_id", "window_start", "lateness_seconds", "reason"]
    rows = sorted(logged.read_frame(streamed.late_table).select(*columns).collect())
    assert rows == sorted(logged.read_frame(filled.late_table).select(*columns).collect())
    counted = sum(r["events"] for r in reference(ARRIVALS).values())
    assert len({r["correlation_id"] for r in rows}) == len(rows) == 5 * 40 - counted
    lags = {r["lateness_seconds"] for r in rows if r["reason"] == "too_late"}
    assert min(lags) >= 2 * MINUTE / 1e6
    assert {r["reason"] for r in rows} == {"too_late", "no_event_time"}


def test_no_run_happens_without_new_arrivals(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "once")
    assert incremental(logged, asset) is not None
    assert incremental(logged, asset) is None


def test_a_source_that_was_never_ingested_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(DataError, match="no table 'readings_timeline'"):
        incremental(warehouse, PER_MINUTE)
    with pytest.raises(DataError, match="no table 'readings_timeline'"):
        backfill(warehouse, PER_MINUTE)


def test_an_empty_range_is_refused(logged: Warehouse) -> None:
    with pytest.raises(DefinitionError, match="a start and a later end"):
        backfill(logged, PER_MINUTE, *minutes(3, 3))


def test_an_unknown_column_is_named_before_anything_runs(logged: Warehouse) -> None:
    wrong = replace(PER_MINUTE, name="wrong", aggregates={"top": agg.max("velocity")})
    with pytest.raises(DefinitionError, match=r"'wrong': the engine can't analyze .*`velocity`"):
        incremental(logged, wrong)
    assert not logged.has_table("wrong_state")
