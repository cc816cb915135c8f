"""Tests that each injected fault fails its own expectation and no other.

This holds for backfills and increments. Windows without a fault are published.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest
from helpers.suite.nightly import mostly_nightly
from tidemark import expect as q
from tidemark.base.settings import Settings
from tidemark.compute import in_memory
from tidemark.compute.windowing import aggregate_events, classify_scope
from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform
from tidemark.quality import results
from tidemark.run import compute as compute_step
from tidemark.run import runner as run
from tidemark.run import window_rows
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.rows import compute as pc
from tidemark.store.warehouse import Warehouse

# Many runs for each injected fault: half a minute of processor time.
pytestmark = pytest.mark.slow

MINUTES = 10
SECOND = 1_000_000
FAULTY = replace(READINGS, name="faulty")
SOUND = replace(READINGS, name="sound")


def sound(minute: int, sensor: str | None) -> list[Event]:
    """Return three correct readings of a sensor in one minute."""
    return [
        Event(T0 + minute * MINUTE + s * SECOND, sensor, round(minute + s / 100, 2))
        for s in (5, 20, 40)
    ]


def arrivals(*sensors: str | None) -> list[list[Event]]:
    """Return one arrival for each minute, with correct readings of each sensor."""
    return [[e for s in sensors for e in sound(m, s)] for m in range(MINUTES)]


def planted() -> list[list[Event]]:
    """Return arrivals of one correct sensor and of one sensor for each kind of fault."""
    found = arrivals("well", "stuck", "silent", "shifted", "twice", None)
    for minute, events in enumerate(found):
        for n, e in enumerate(events):
            assert e.ts is not None
            if e.key == "stuck":
                events[n] = replace(e, value=7.0)
            if e.key == "shifted":
                events[n] = replace(e, ts=e.ts - 3 * MINUTE)
        if 4 <= minute < 7:
            events[:] = [e for e in events if e.key != "silent"]
    # The arrival of the sixth minute is sent again with the next one.
    found[7] += [e for e in found[6] if e.key == "twice"]
    return found


@pytest.fixture(scope="module")
def logged(engine: Settings, spark: SparkSession) -> Warehouse:
    """Return a warehouse with an event log of correct readings and one with every fault."""
    warehouse = Warehouse(spark, engine.warehouse, f"faults_{uuid4().hex[:12]}", registered=False)
    ingest(warehouse, SOUND, arrivals("a", "b"))
    ingest(warehouse, FAULTY, planted())
    return warehouse


def compute(warehouse: Warehouse, asset: WindowedTransform, mode: str) -> None:
    if mode == "backfill":
        run.backfill(warehouse, asset)
        return
    while run.incremental(warehouse, asset, limit=6) is not None:
        pass


def failing(warehouse: Warehouse, asset: str) -> dict[str, set[tuple[int, str | None]]]:
    """Return the minute and sensor of every failure in all runs, by expectation."""
    rows = warehouse.read_frame(results.TABLE).where(F.col("asset") == asset)
    found: dict[str, set[tuple[int, str | None]]] = {}
    for row in rows.collect():
        failures = found.setdefault(row["expectation"], set())
        assert row["success"] == (not row["failures"])
        failures |= {
            (minute(f["window_start"].timestamp()), json.loads(f["keys"])["sensor"])
            for f in row["failures"]
        }
    return found


def minute(seconds: float) -> int:
    return int(seconds - T0 // SECOND) // 60


def windows(warehouse: Warehouse, table: str) -> set[tuple[int, str | None]]:
    rows = warehouse.read_frame(table).select(F.unix_seconds("window_start"), "sensor").collect()
    return {(minute(r[0]), r[1]) for r in rows}


@pytest.mark.parametrize("mode", mostly_nightly(["incremental", "backfill"]))
def test_each_data_fault_is_found_by_its_expectation(logged: Warehouse, mode: str) -> None:
    asset = replace(
        PER_MINUTE,
        name=f"data_{mode}",
        source=FAULTY,
        expectations=(
            q.not_null("sensor"),
            q.column_greater("most", "least"),
            q.late_share_below(0.5),
            q.volume_within(0.5, of="1 minute"),
            q.no_gap(3),
            q.matches_log(),
            q.unique_key(),
        ),
    )
    compute(logged, asset, mode)
    found = failing(logged, asset.name)
    every = range(MINUTES)
    assert found["not_null(sensor)"] == {(m, None) for m in every}
    assert found["column_greater(most, least)"] == {(m, "stuck") for m in every}
    # Its first readings come before there is a watermark.
    assert found["late_share_below(0.5)"] == {(m - 3, "shifted") for m in every[1:]}
    assert found["volume_within(0.5, 1 minute)"] == {(6, "twice")}
    # A clock that is three minutes behind looks silent for three minutes, too.
    assert found["no_gap(3)"] == {(3, "silent"), (6, "shifted")}
    assert found["matches_log()"] == found["unique_key()"] == set()
    withheld = windows(logged, asset.quarantine_table)
    assert {s for _, s in withheld} == {None, "stuck", "shifted", "twice"}
    published = windows(logged, asset.published_table)
    assert {(m, "well") for m in every} <= published
    assert published.isdisjoint(withheld)


@pytest.mark.parametrize("mode", mostly_nightly(["incremental", "backfill"]))
def test_a_dropped_or_doubled_arrival_is_detected(
    logged: Warehouse, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_fault(log: Log, transform: WindowedTransform, scope: Scope, *_: object) -> DataFrame:
        events = classify_scope(log, transform, scope)
        doubled = events.where("arrival = 5 AND sensor = 'a'")
        kept = events.where("NOT (arrival = 3 AND sensor = 'b')").unionByName(doubled)
        return aggregate_events(kept, transform, log)

    monkeypatch.setattr(compute_step, "count_scope", at_fault)
    asset = replace(
        PER_MINUTE,
        name=f"engine_{mode}",
        source=SOUND,
        expectations=(q.matches_log(), q.unique_key()),
    )
    compute(logged, asset, mode)
    found = failing(logged, asset.name)
    assert found == {"matches_log()": {(3, "b"), (5, "a")}, "unique_key()": set()}
    # The window whose events were dropped has no row that could be quarantined.
    assert windows(logged, asset.quarantine_table) == {(5, "a")}


@pytest.mark.parametrize("mode", mostly_nightly(["incremental", "backfill"]))
def test_a_window_with_two_rows_is_detected(
    logged: Warehouse, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle, compute_in_memory = window_rows.choose_lifecycle, in_memory.compute_changes

    def twice(partials: pa.Table, of: Definition, marker: CommitInfo) -> pa.Table | None:
        rows = compute_in_memory(partials, of, marker)
        assert rows is not None
        first = pc.equal(pc.cast(rows["window_start"], pa.int64()), T0)
        return pa.concat_tables([rows, rows.filter(pc.and_(first, pc.greater(rows["n"], 0)))])

    def doubled(ask: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        def asked(*given: object, **more: object) -> DataFrame:
            rows = ask(*given, **more)
            return rows.unionByName(rows.where(f"window_start = timestamp_micros({T0}) AND n > 0"))

        return asked

    def at_fault(transform: Definition) -> SimpleNamespace:
        kind = lifecycle(transform)
        asked = {
            name: doubled(getattr(kind, name)) for name in ("finish_windows", "compute_changes")
        }
        return SimpleNamespace(
            all_fire_once=kind.all_fire_once,
            repartition_for_merge=kind.repartition_for_merge,
            **asked,
        )

    # The engine computes the rows of a backfill; a small increment is computed in memory.
    monkeypatch.setattr(window_rows, "choose_lifecycle", at_fault)
    monkeypatch.setattr(in_memory, "compute_changes", twice)
    asset = replace(PER_MINUTE, name=f"rows_{mode}", source=SOUND, expectations=(q.unique_key(),))
    compute(logged, asset, mode)
    assert failing(logged, asset.name)["unique_key()"] == {(0, "a"), (0, "b")}
    assert windows(logged, asset.quarantine_table) == {(0, "a"), (0, "b")}
    assert len(windows(logged, asset.published_table)) == 2 * MINUTES - 2


@pytest.mark.parametrize("mode", mostly_nightly(["incremental", "backfill"]))
def test_a_closed_window_that_changes_keeps_its_last_valid_row(
    warehouse: Warehouse, mode: str
) -> None:
    asset = replace(PER_MINUTE, expectations=(q.max_change_after_close(0.5),))
    ingest(warehouse, READINGS, arrivals("a", "b")[:6], ends=False)
    compute(warehouse, asset, mode)
    # The sensor's readings of the fourth minute arrive a second time.
    ingest(warehouse, READINGS, [sound(3, "a")])
    compute(warehouse, asset, mode)
    assert failing(warehouse, asset.name) == {"max_change_after_close(0.5, events)": {(3, "a")}}
    (row,) = (
        warehouse.read_frame(asset.published_table)
        .where("sensor = 'a'")
        .where(at_minute(3))
        .collect()
    )
    assert (row["n"], row["quality"]) == (3, "passed")
    (held,) = warehouse.read_frame(asset.quarantine_table).collect()
    assert (held["n"], held["failed_expectations"][0]["observed"]) == (6, "6.0 after 3.0")


def at_minute(number: int) -> str:
    return f"window_start = timestamp_micros({T0 + number * MINUTE})"
