"""Tests of comparing two definitions: the parts that differ and the windows that would change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.runs import left_behind
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    ingest,
    minutes,
    published,
    reference,
    some_arrivals,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionChangedError
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.compute.materialize import TempTables
from tidemark.define import aggregates as agg
from tidemark.define.identity.parts import Effect
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.expect import between
from tidemark.run import compute, takeover
from tidemark.run.change.rebuild import promote_tables, rebuild_tables, roll_back
from tidemark.run.plan import Plan
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.asset import Asset
from tidemark.store.lineage import StaleError
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import compute_changes
from tidemark.verify.parity import check_parity
from tidemark_streaming.snapshot.snapshot import Snapshot

ARRIVALS = some_arrivals(count=6)


def halved(rows: DataFrame) -> DataFrame:
    return rows.withColumn("value", F.col("value") / 2)


CHANGED: Mapping[str, tuple[WindowedTransform, list[str], Effect]] = {
    "window": (
        replace(PER_MINUTE, window=Tumbling("2 minutes")),
        ["window (tumbling 1 minute → tumbling 2 minutes)"],
        Effect.REBUILD,
    ),
    "keys": (replace(PER_MINUTE, keys=()), ["keys (sensor → none)"], Effect.REBUILD),
    "aggregates": (
        replace(
            PER_MINUTE,
            aggregates={
                **{k: a for k, a in PER_MINUTE.aggregates.items() if k != "least"},
                "high": agg.count(where="value > 0.6"),
                "newest": agg.last("value"),
            },
        ),
        [
            "aggregate high (count(*) where value > 0.5 → count(*) where value > 0.6)",
            "aggregate newest added (last(value))",
            "aggregate least removed (min(value))",
        ],
        Effect.REBUILD,
    ),
    "lateness": (
        replace(PER_MINUTE, allowed_lateness=MINUTE),
        ["allowed lateness (2 minutes → 1 minute)"],
        Effect.REBUILD,
    ),
    "expectations": (
        replace(PER_MINUTE, expectations=(between("n", 0, 100),)),
        ["expectation between(n, 0, 100) added (from 0 to 100, error)"],
        Effect.NONE,
    ),
    "accumulation": (
        replace(PER_MINUTE, accumulation="discarding"),
        ["accumulation (none → discarding)"],
        Effect.REBUILD,
    ),
    "columns": (
        replace(PER_MINUTE, source=replace(READINGS, columns={**READINGS.columns, "x": "int"})),
        [],
        Effect.NONE,
    ),
    "description": (replace(PER_MINUTE, description="Another one."), [], Effect.NONE),
}


@pytest.fixture(scope="module")
def made(shared: Warehouse) -> Warehouse:
    """Return a warehouse with `PER_MINUTE`, computed in two runs."""
    ingest(shared, READINGS, ARRIVALS[:3], ends=False)
    incremental(shared, PER_MINUTE)
    ingest(shared, READINGS, ARRIVALS[3:], ends=False)
    incremental(shared, PER_MINUTE)
    return shared


@pytest.mark.parametrize(("now", "told", "effect"), CHANGED.values(), ids=CHANGED)
def test_the_parts_that_differ_are_named(
    made: Warehouse, now: WindowedTransform, told: list[str], effect: Effect
) -> None:
    asset = Asset(made, now)
    found = takeover.find_changes(asset, asset.state.read_last_commit())
    assert [str(c) for c in found] == told
    assert max((c.effect for c in found), key=list(Effect).index, default=Effect.NONE) == effect


def test_changed_code_is_reported_with_its_versions(made: Warehouse) -> None:
    found = compute_changes(made, replace(PER_MINUTE, function=halved))
    (code,) = found.differences
    assert code.part == "code"
    assert code.before != code.after
    assert found.effect is Effect.FORWARD


def test_equal_definitions_compute_nothing(made: Warehouse) -> None:
    found = compute_changes(made, PER_MINUTE)
    assert found.has_same_definition
    assert (found.windows, found.as_of) == (0, 5)


def test_the_windows_that_would_change_are_reported(made: Warehouse) -> None:
    """The number equals the windows that a backfill with the new definition changes."""
    less = replace(PER_MINUTE, aggregates={**PER_MINUTE.aggregates, "high": agg.count()})
    found = compute_changes(made, less)
    rows = made.load_rows(PER_MINUTE.published_table).to_pylist()
    odd = [r for r in rows if r["high"] != r["n"]]
    assert odd
    assert found.rows == {"changed": len(odd)}
    assert found.columns == {"high": len(odd)}
    assert found.windows == len(rows)
    starts = [r["window_start"] for r in odd]
    assert (found.earliest, found.latest) == tuple(
        f"{format_instant(s)}"[:-1] + ".000000Z"
        if "." not in f"{format_instant(s)}"
        else format_instant(s)
        for s in (int(s.timestamp()) * 1_000_000 for s in (min(starts), max(starts)))
    )
    (first, *_) = found.examples
    assert (first.column, first.kind) == ("high", "changed")
    assert first.before != first.after


def test_a_range_limits_the_windows_that_are_compared(made: Warehouse) -> None:
    less = replace(PER_MINUTE, aggregates={**PER_MINUTE.aggregates, "high": agg.count()})
    whole, part = compute_changes(made, less), compute_changes(made, less, *minutes(-1, 2))
    assert 0 < part.windows < whole.windows
    assert part.rows["changed"] < whole.rows["changed"]


@pytest.mark.nightly
@pytest.mark.slow
def test_other_keys_replace_all_rows(made: Warehouse) -> None:
    found = compute_changes(made, replace(PER_MINUTE, keys=()))
    starts = {r["window_start"] for r in made.load_rows(PER_MINUTE.published_table).to_pylist()}
    count = made.load_rows(PER_MINUTE.published_table).num_rows
    assert found.rows == {"new": len(starts), "removed": count}


@pytest.mark.nightly
@pytest.mark.slow
def test_a_new_column_is_reported_without_value_changes(made: Warehouse) -> None:
    more = replace(PER_MINUTE, aggregates={**PER_MINUTE.aggregates, "final_value": agg.max("ts")})
    found = compute_changes(made, more)
    assert found.columns == {"final_value": None}
    assert found.rows == {}


@pytest.mark.parametrize("name", ["window", "keys", "aggregates", "accumulation"])
def test_runs_are_refused_if_the_tables_need_a_rebuild(made: Warehouse, name: str) -> None:
    now, (told, *_), _ = CHANGED[name]
    tables = [PER_MINUTE.published_table, PER_MINUTE.state_table]
    before = [made.newest_version(table) for table in tables]
    for work in (incremental, correct, lambda w, t: backfill(w, t, *minutes(0, 1))):
        with pytest.raises(StaleError) as refused:
            work(made, now)
        assert told in str(refused.value)
        assert "`tidemark rebuild per_minute`" in str(refused.value)
    assert [made.newest_version(table) for table in tables] == before


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_an_earlier_definition_does_not_publish_a_newer_ones_commit(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer definition was interrupted before it published its commit."""
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)
    later = replace(PER_MINUTE, function=halved)
    ingest(warehouse, READINGS, ARRIVALS[3:], ends=False)
    left_behind(warehouse, later, monkeypatch)
    version = warehouse.newest_version(PER_MINUTE.published_table)
    with pytest.raises(DefinitionChangedError):
        incremental(warehouse, PER_MINUTE, pinned_definition=True)
    assert warehouse.newest_version(PER_MINUTE.published_table) == version


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_an_earlier_definitions_windows_are_reported_until_a_full_backfill(
    warehouse: Warehouse,
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)
    ingest(warehouse, READINGS, ARRIVALS[3:])
    now = replace(PER_MINUTE, function=halved)
    incremental(warehouse, now)
    found = compute_changes(warehouse, now)
    assert found.earlier_through == 2
    assert not found.has_same_definition
    assert found.rows["changed"] == check_parity(warehouse, now).kinds["value"] - _repeated(found)
    backfill(warehouse, now)
    assert compute_changes(warehouse, now).has_same_definition
    assert check_parity(warehouse, now).is_equal


def _repeated(found: Any) -> int:  # noqa: ANN401
    """Return how many changed values exceed one per row, because parity counts values."""
    return sum(n or 0 for n in found.columns.values()) - found.rows["changed"]


def test_a_full_backfill_may_change_the_columns(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    now, _, _ = CHANGED["aggregates"]
    backfill(warehouse, now)
    assert check_parity(warehouse, now).is_equal
    assert compute_changes(warehouse, now).has_same_definition
    (row, *_) = published(warehouse, now).values()
    assert "newest" in row
    assert "least" not in row


# Many runs.
@pytest.mark.slow
@pytest.mark.parametrize("way", mostly_nightly(["rebuild", "backfill"]))
def test_a_source_with_a_new_name_is_counted_from_arrival_0(
    engine: Settings, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The asset's position in the earlier event log does not matter.

    This also holds if a stream continues with the earlier log during the backfill.
    """
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE, limit=6)
    others = replace(READINGS, name="others")
    now = replace(PER_MINUTE, source=others)
    ingest(warehouse, others, ARRIVALS[:4], ends=False)
    with pytest.raises(StaleError, match=r"source \(readings by ts → others by ts\)"):
        incremental(warehouse, now)
    if way == "rebuild":
        rebuild_tables(warehouse, now)
        assert promote_tables(warehouse, now).through_arrival == 3
    else:
        with monkeypatch.context() as patch:
            beside(patch, now, lambda: incremental(warehouse, PER_MINUTE))
            facts = backfill(warehouse, now)
        assert (facts.commit_number, facts.through_arrival) == (2, 3)
    snapshot = Snapshot(engine.model_copy(update={"database": warehouse.database}), [now])
    assert snapshot.assets_behind([now.name], 3) == []
    ingest(warehouse, others, ARRIVALS[4:])
    assert snapshot.assets_behind([now.name], 6) == [now.name]
    assert snapshot.read_asset(now).as_of == 3
    facts = incremental(warehouse, now)
    assert facts is not None
    assert (facts.from_arrival, facts.through_arrival) == (3, 6)
    assert published(warehouse, now) == reference(ARRIVALS)
    assert check_parity(warehouse, now).is_equal
    if way == "rebuild":
        assert snapshot.assets_behind([now.name], 6) == []
        assert roll_back(warehouse, now).through_arrival == 5
        assert snapshot.assets_behind([now.name], 6) == [now.name]
        assert incremental(warehouse, PER_MINUTE) is not None
        assert check_parity(warehouse, PER_MINUTE).is_equal


def beside(patch: pytest.MonkeyPatch, asset: WindowedTransform, stream: Callable[[], Any]) -> None:
    """Run a stream whenever the events of an asset are counted."""
    count = compute.count_events

    def alive(counted: Asset, todo: Plan, place: TempTables) -> Rows:
        rows = count(counted, todo, place)
        if counted.transform == asset:
            stream()
        return rows

    patch.setattr(compute, "count_events", alive)


def test_an_asset_that_never_ran_is_not_compared(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    with pytest.raises(DataError, match="has not run yet"):
        compute_changes(warehouse, PER_MINUTE)
