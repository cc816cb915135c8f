"""Tests of durability: damaged tables are found and named, and block new commits.

The tables lack a commit or a data file, as after a power cut or in a copy of a live home. One home
is written without an engine, by the code of ingests and runs. Each case damages a copy of it.
"""

import itertools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.fs import FileSelector, FileSystem

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0
from helpers.processes.object_store import serve_bucket
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError
from tidemark.define import tables as tables_of
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.helper_columns import MARKER, VERDICT
from tidemark.define.rollup import rollup
from tidemark.define.tables import CHECKS, LEDGER
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store import ledger, operations
from tidemark.store.asset import Asset
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.kinds import Increment
from tidemark.store.committers.durable import LOG, added_files
from tidemark.store.committers.file_systems import file_system
from tidemark.store.event_log.arrival import TIMELINE, Arrival, new_arrival_id
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step, TakenArrival
from tidemark.store.integrity import table_check, vouching
from tidemark.store.integrity.asset_check import AssetCheck
from tidemark.store.integrity.checked_tables import CheckedTables
from tidemark.store.integrity.damage import DamageError
from tidemark.store.integrity.file_faults import log_entries
from tidemark.store.integrity.table_check import demand_intact, find_damage
from tidemark.store.ledger import RunFacts
from tidemark.store.lineage import Lineage, StaleError, WarehouseReader
from tidemark.store.rows import INSTANT
from tidemark.store.upkeep.dropping import drop_owner
from tidemark.store.warehouse import Warehouse

SOURCE = replace(READINGS, columns={"ts": "timestamp", "sensor": "string"})
ASSET = replace(PER_MINUTE, source=SOURCE)
FACTS = {
    **dict.fromkeys(("arrival", "position"), pa.int64()),
    **dict.fromkeys(("arrived_at", "watermark"), INSTANT),
    **dict.fromkeys(("read_from", "correlation_id"), pa.string()),
}
PARTIALS = pa.table(
    {
        "commit_number": pa.array([0], pa.int64()),
        MARKER: pa.nulls(1, pa.string()),
        "n": pa.array([1]),
        VERDICT: pa.array([1], pa.int64()),
        "events": pa.array([1], pa.int64()),
    }
)
WINDOWS = pa.table({"n": pa.array([1], pa.int64())})
FACTS_OF_A_RUN = RunFacts(
    *("run", ASSET.name, "", "incremental", "exclude", 0, -1, 0),
    *(None, None, T0, T0, None, 1, 0, 0, 10, 0, 0, 0, 0, False),
)
TABLES = (
    *(SOURCE.log_table, SOURCE.timeline_table),
    *(ASSET.state_table, ASSET.published_table, ASSET.quarantine_table, ASSET.late_table),
    *(LEDGER, CHECKS),
)


def without_commit(table: Path) -> None:
    log_entries(str(table))[-1].unlink()


def with_empty_commit(table: Path) -> None:
    log_entries(str(table))[-1].write_bytes(b"")


def with_half_commit(table: Path) -> None:
    newest = log_entries(str(table))[-1]
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])


def with_a_commit_cut_at_a_line(table: Path) -> None:
    newest = log_entries(str(table))[-1]
    text = newest.read_text()
    newest.write_text(text[: text.index("\n") + 1])


def without_file(table: Path) -> None:
    newest_file(table).unlink()


def with_half_file(table: Path) -> None:
    file = newest_file(table)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGES: Sequence[Callable[[Path], None]] = (
    *(without_commit, with_empty_commit, with_half_commit, with_a_commit_cut_at_a_line),
    *(without_file, with_half_file),
)
VOUCHED = TABLES[:-2]
"""The tables for which commits of other tables vouch, and the timeline, which has no gaps."""
HEALED = (LEDGER, without_commit)
"""The next run writes this commit again."""


def newest_file(table: Path) -> Path:
    for entry in reversed(log_entries(str(table))):
        if paths := [p for p in added_files(entry.read_text()) if not p.startswith("_change_data")]:
            return table / paths[-1]
    raise AssertionError(table)


def arrive(store: Warehouse, number: int, count: int = 10) -> None:
    """Ingest an arrival of some events, as a process of its own."""
    rows = pa.table(
        {
            "ts": pa.array([T0 + number * MINUTE] * count, pa.int64()).cast(INSTANT),
            "sensor": ["a"] * count,
            "arrival": pa.array([number] * count, pa.int64()),
            "position": pa.array(range(count), pa.int64()),
            "read_from": ["somewhere"] * count,
        }
    )
    table_check.demand_intact(store, SOURCE)
    log = Log(store, SOURCE)
    log.replaced = table_check.find_newest_read(store, SOURCE)
    log.take_over()
    newest = log.find_last_arrival()
    arrival = Arrival(number, T0, None, None, count, T0, T0, 0, "{}")
    follows = "" if newest is None else newest.arrival_id
    log.append_arrivals(rows, [replace(arrival, follows=follows)])


def run(store: Warehouse, number: int) -> None:
    """Count an arrival and publish it."""
    asset = Asset(store, ASSET)
    asset.table_id = asset.state.ensure_table(PARTIALS)
    newest = asset.log.find_last_arrival()
    assert newest is not None
    position = TimelinePosition(newest.arrival, arrival_id=newest.arrival_id)
    marker = Increment(commit_number=number, after=Coverage(position))
    partials = PARTIALS.set_column(0, "commit_number", [[number]])
    asset.state.store_commit(partials, marker, asset.start_epoch)
    for table in (ASSET.quarantine_table, CHECKS, ASSET.late_table, ASSET.published_table):
        store.ensure_table(table, WINDOWS)
        store.append_rows(WINDOWS, table, asset.commit_app, number)
    facts = replace(
        FACTS_OF_A_RUN,
        table_id=asset.table_id,
        commit_number=number,
        from_arrival=number - 1,
        through_arrival=number,
    )
    ledger.add_run(store, facts, [*ASSET.own_tables, CHECKS])


def create_store(place: str) -> Warehouse:
    """Create a home with the empty tables of the source."""
    store = Warehouse(cast("Any", None), place, "home", registered=False)
    store.ensure_table(SOURCE.timeline_table, TIMELINE.empty_table())
    columns = pa.schema([("ts", INSTANT), ("sensor", pa.string()), *FACTS.items()])
    store.ensure_table(SOURCE.log_table, columns.empty_table())
    store.ensure_table(SOURCE.dead_letters_table, columns.empty_table())
    return store


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return copies of a home, one after each arrival was counted."""
    folder, found = tmp_path_factory.mktemp("moments"), list[Path]()
    store = create_store(str(folder))
    for number in range(4):
        arrive(store, number)
        run(store, number)
        shutil.copytree(store.path_of(""), folder / f"{number}")
        found.append(folder / f"{number}")
    return found


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait before the second check, because nothing else writes the tables."""
    monkeypatch.setattr(table_check, "CONFIRMATION_SECONDS", 0)
    # Every arrival checks the tables, like the ingest of another process.
    monkeypatch.setattr(table_check, "checked_nodes", set[tuple[str, str]]())


@pytest.fixture
def home(moments: list[Path], tmp_path: Path) -> Path:
    """Return a copy of the newest one."""
    shutil.copytree(moments[-1], tmp_path / "w" / "home")
    return tmp_path / "w" / "home"


def open_store(home: Path) -> Warehouse:
    """Open a home without an engine, as a new process does."""
    table_check.checked_nodes.clear()
    return Warehouse(cast("Any", None), str(home.parent), home.name, registered=False)


def why_stale(home: Path) -> str | None:
    """Return why the asset is stale; None if it is not."""
    stale = Lineage(WarehouseReader(open_store(home))).of_asset(ASSET)
    return None if stale is None else str(stale)


def checked(home: Path) -> list[str]:
    return [damage.table for damage in find_damage(str(home), [SOURCE], [ASSET])]


def test_an_undamaged_home_has_no_damage(home: Path) -> None:
    assert checked(home) == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_damage_is_found(home: Path, table: str, damage: Callable[[Path], None]) -> None:
    damage(home / table)
    found = checked(home)
    if (table, damage) == HEALED:
        assert found == []
        return
    assert found
    assert found[0] == table or table in {SOURCE.timeline_table, LEDGER, CHECKS}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_an_older_commit_that_was_lost_is_found(home: Path, table: str, number: int) -> None:
    """delta-rs reads an empty commit as one that changes nothing."""
    log_entries(str(home / table))[-number - 1].write_bytes(b"")
    assert table in checked(home)


@pytest.mark.parametrize("table", VOUCHED, ids=str)
def test_a_lost_commit_is_found_after_a_checkpoint_without_it(home: Path, table: str) -> None:
    with_rows = [e for e in log_entries(str(home / table)) if added_files(e.read_text())]
    with_rows[-2].write_bytes(b"")
    DeltaTable(str(home / table)).create_checkpoint()
    (damage, *_) = find_damage(str(home), [SOURCE], [ASSET])
    assert damage.table == table
    assert re.search("lacks arrival|has other data files at version|rows? ", damage.problem)


@pytest.mark.parametrize("table", VOUCHED, ids=str)
def test_compaction_and_trimmed_logs_are_not_damage(home: Path, table: str) -> None:
    opened = DeltaTable(str(home / table))
    opened.optimize.compact()
    assert checked(home) == []
    opened.create_checkpoint()
    for entry in log_entries(str(home / table))[:-1]:
        entry.unlink()
    assert checked(home) == []


@given(st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_replaced_commit_is_found(
    moments: list[Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A table with a commit that another home has at the same version.

    Files of other homes have other names, and their arrivals have other identities. The newest
    arrival of a timeline may be another one only if nothing was made from it, which `Lineage`
    compares.
    """
    home = tmp_path_factory.mktemp("replaced") / "home"
    shutil.copytree(moments[-1], home)
    table = data.draw(st.sampled_from(VOUCHED))
    commits = log_entries(str(home / table))
    if table == SOURCE.timeline_table:
        commits = commits[:-1]
    version = data.draw(st.integers(1, len(commits) - 1))
    actions = [json.loads(line) for line in commits[version].read_text().splitlines()]
    for action in actions:
        if "add" in action:
            other = f"other-{action['add']['path']}"
            shutil.copy(home / table / action["add"]["path"], home / table / other)
            if table == SOURCE.timeline_table:
                with_other_identities(home / table / other)
                action["add"]["size"] = (home / table / other).stat().st_size
            action["add"]["path"] = other
    commits[version].write_text("\n".join(map(json.dumps, actions)))
    assert table in checked(home) or not any("add" in action for action in actions)


def with_other_identities(file: Path) -> None:
    rows = pq.read_table(file)
    index = rows.schema.get_field_index("arrival_id")
    others = pa.array([new_arrival_id() for _ in range(rows.num_rows)])
    pq.write_table(rows.set_column(index, "arrival_id", others), file)


# A home in an object store.
@pytest.mark.slow
def test_a_lost_commit_is_found_in_an_object_store() -> None:
    with serve_bucket() as address:
        store = create_store(address)
        for number in range(2):
            arrive(store, number)
            run(store, number)
        folder = store.path_of("").rstrip("/")
        assert find_damage(folder, [SOURCE], [ASSET]) == []
        system, path = file_system(folder)
        for table in (SOURCE.log_table, ASSET.published_table):
            log = FileSelector(f"{path}/{table}/_delta_log")
            names = sorted(entry.path for entry in system.get_file_info(log))
            texts = {name: system.open_input_file(name).read() for name in names}
            with_rows = [name for name in names if b'"add"' in texts[name]]
            write_entry(system, with_rows[-2], b"")
            assert table in [damage.table for damage in find_damage(folder, [SOURCE], [ASSET])]
            write_entry(system, with_rows[-2], texts[with_rows[-2]])


def write_entry(system: FileSystem, path: str, content: bytes) -> None:
    with system.open_output_stream(path) as entry:
        entry.write(content)


@pytest.mark.parametrize(
    "table", [ASSET.state_table, ASSET.published_table, SOURCE.log_table], ids=str
)
def test_a_table_that_is_restored_under_a_running_process_is_found(
    moments: list[Path], home: Path, table: str
) -> None:
    store = Warehouse(cast("Any", None), str(home.parent), home.name, registered=False)
    arrive(store, 4)
    run(store, 4)
    demand_intact(store, SOURCE, ASSET)
    shutil.rmtree(home / table)
    shutil.copytree(moments[-2] / table, home / table)
    with pytest.raises(DamageError, match=f"Table '{table}' "):
        demand_intact(store, SOURCE, ASSET)
    # The finding stays until the tables belong together again.
    with pytest.raises(DamageError):
        demand_intact(store, SOURCE, ASSET)


def published_through(home: Path) -> int:
    tables = CheckedTables(str(home))
    ledger_table, app = tables.open_table(LEDGER), AssetCheck(tables, ASSET).find_app()
    assert ledger_table is not None
    assert app is not None
    found = ledger_table.transaction_version(app)
    assert found is not None
    return found


def test_a_ledger_that_lacks_several_runs_is_completed_by_the_next_run(home: Path) -> None:
    for _ in range(2):
        without_commit(home / LEDGER)
    assert checked(home) == []
    assert published_through(home) == 1


@pytest.mark.parametrize("followed", [False, True], ids=["newest", "followed by a run"])
def test_a_lost_release_is_found(home: Path, followed: bool) -> None:
    store = Warehouse(cast("Any", None), str(home.parent), home.name, registered=False)
    app = Asset(store, ASSET).commit_app
    # As a release: the window enters the published table, then leaves the quarantine.
    store.append_rows(WINDOWS, ASSET.published_table)
    vouches = vouching.vouched_versions(store, app, [ASSET.published_table])
    store.append_rows(WINDOWS.slice(0, 0), ASSET.quarantine_table, vouches=vouches)
    if followed:
        arrive(store, 4)
        run(store, 4)
    assert checked(home) == []
    for _ in range(1 + followed):
        without_commit(home / ASSET.published_table)
    lacks = f"lacks windows that were released from '{ASSET.quarantine_table}'"
    assert any(lacks in damage.problem for damage in find_damage(str(home), [SOURCE], [ASSET]))


def test_a_lost_commit_of_a_roll_up_is_found(home: Path) -> None:
    hourly = rollup(of=ASSET, name="hourly", window=Tumbling("1 hour"))
    store = Warehouse(cast("Any", None), str(home.parent), home.name, registered=False)
    columns = pa.table({"n": pa.array([1], pa.int64())})
    generation = {rollup_generation.PROPERTY: rollup_generation.initial_generation(hourly)}
    store.ensure_table(hourly.published_table, columns, extra_properties=generation)
    asset = Asset(store, hourly)
    for number in (2, 3):
        store.append_rows(columns, hourly.published_table, asset.commit_app, number)
        facts = replace(
            FACTS_OF_A_RUN, asset=hourly.name, table_id=str(asset.table_id), commit_number=number
        )
        ledger.add_run(store, facts, [*hourly.own_tables, CHECKS])
    assert find_damage(str(home), [SOURCE], [hourly, ASSET]) == []
    without_commit(home / hourly.published_table)
    assert [(d.table, d.asset) for d in find_damage(str(home), [SOURCE], [hourly, ASSET])] == [
        (hourly.published_table, hourly.name)
    ]


@pytest.mark.parametrize("lost", [*DAMAGES, shutil.rmtree])
def test_lost_validation_results_are_found(home: Path, lost: Callable[[Path], None]) -> None:
    lost(home / CHECKS)
    assert checked(home) == [CHECKS]


# Every pair of tables.
@pytest.mark.slow
@pytest.mark.parametrize(
    "tables",
    mostly_nightly([(pair,) for pair in itertools.combinations(TABLES, 2)], 4),
    ids="-".join,
)
def test_two_tables_that_lack_a_commit_are_found(home: Path, tables: tuple[str, str]) -> None:
    for table in tables:
        without_commit(home / table)
    # The ledger also lacks commits that were not fully published: the next run completes them.
    healed = {LEDGER, CHECKS, ASSET.published_table, ASSET.quarantine_table, ASSET.late_table}
    if set(tables) == {SOURCE.log_table, SOURCE.timeline_table}:
        # The same as a source that was restored from an earlier copy.
        assert checked(home) == []
        assert why_stale(home) is not None
    elif not checked(home):
        assert set(tables) <= healed
        assert LEDGER in tables


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "table", [ASSET.state_table, ASSET.published_table, ASSET.late_table], ids=str
)
def test_an_asset_with_damaged_tables_can_be_dropped_and_computed_again(
    home: Path, table: str, damage: Callable[[Path], None]
) -> None:
    damage(home / table)
    assert checked(home)
    store = Warehouse(cast("Any", None), str(home.parent), home.name, registered=False)
    assert table in drop_owner(store, ASSET.published_table.owner, ASSET.own_tables)
    assert checked(home) == []
    run(store, 0)
    assert checked(home) == []


def test_the_message_names_the_table_the_version_and_the_backup(home: Path) -> None:
    without_commit(home / SOURCE.log_table)
    version = len(log_entries(str(home / SOURCE.log_table)))
    with pytest.raises(DamageError) as told:
        incremental(
            Warehouse(cast("Any", None), str(home.parent), home.name, registered=False), ASSET
        )
    text = str(told.value)
    assert f"'readings_log' is at version {version - 1}, but 'readings_timeline' " in text
    assert f"depends on its version {version}" in text
    assert "Restore the tables from a backup in which they have these versions" in text


def test_an_ingest_is_refused_if_it_would_delete_rows_that_were_read(home: Path) -> None:
    without_commit(home / SOURCE.timeline_table)
    lost = (
        r"'readings_timeline' ends with arrival 2 .*'readings_log' has rows of arrival 3, which "
        r"'per_minute' has read: the timeline's newest commits were lost"
    )
    with pytest.raises(DamageError, match=lost):
        arrive(open_store(home), 3)
    assert [damage.asset for damage in find_damage(str(home), [SOURCE], [])] == [ASSET.name]


SOURCE_TABLES = (SOURCE.log_table, SOURCE.timeline_table, SOURCE.dead_letters_table)


def restore_source(moments: list[Path], home: Path, moment: int) -> None:
    """Restore all tables of the source from an earlier copy of the home."""
    for table in SOURCE_TABLES:
        shutil.rmtree(home / table)
        shutil.copytree(moments[moment] / table, home / table)


@pytest.mark.slow
@given(moment=st.integers(0, 3), again=st.integers(0, 5), killed=st.booleans(), data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_restored_source_goes_on_and_what_read_more_of_it_is_stale(
    moments: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
    moment: int,
    again: int,
    data: st.DataObject,
    *,
    killed: bool,
) -> None:
    """Other arrivals take the numbers of the lost ones; an ingest is killed before its timeline."""
    home = tmp_path_factory.mktemp("restored") / "w" / "home"
    shutil.copytree(moments[-1], home)
    restore_source(moments, home, moment)
    lost = moment < len(moments) - 1
    assert checked(home) == []
    for number in range(moment + 1, moment + 1 + again):
        arrive(open_store(home), number, data.draw(st.integers(0, 3)))
        assert checked(home) == []
        assert (why_stale(home) is not None) == lost
    if killed:
        arrive(open_store(home), moment + 1 + again)
        without_commit(home / SOURCE.timeline_table)
    assert checked(home) == []
    cause = why_stale(home)
    assert (cause is not None) == lost
    if cause is None:
        return
    assert "`tidemark backfill per_minute`" in cause
    with pytest.raises(StaleError, match="Nothing was changed"):
        incremental(open_store(home), ASSET)


def test_a_lost_commit_without_rows_makes_the_asset_stale(home: Path) -> None:
    """An ingest has nothing to lose if the arrival had no rows."""
    store = open_store(home)
    arrive(store, 4, 0)
    run(store, 4)
    without_commit(home / SOURCE.timeline_table)
    assert checked(home) == []
    assert "ends with arrival 3, but its arrival 4 was read" in str(why_stale(home))


@row_asset(source=SOURCE)
def kept_readings(readings: Any) -> Any:  # noqa: ANN401
    return readings


def test_rows_that_a_derived_source_has_read_are_not_deleted_either(home: Path) -> None:
    drop_owner(open_store(home), ASSET.published_table.owner, ASSET.own_tables)
    store = open_store(home)
    newest = Log(store, SOURCE).find_last_arrival()
    assert newest is not None
    taken = {SOURCE.name: TakenArrival(newest.arrival, newest.arrival_id, "")}
    log = Log(store, kept_readings)
    for table in (kept_readings.log_table, kept_readings.dead_letters_table):
        store.ensure_table(table, pa.table({"arrival": pa.array([], pa.int64())}))
    store.ensure_table(kept_readings.timeline_table, TIMELINE.empty_table())
    log.take_over()
    position = Step(SOURCE.name, taken).to_position()
    log.append_arrivals(pa.table({}), [Arrival(0, T0, None, None, 0, None, None, 0, position)])
    assert checked(home) == []
    without_commit(home / SOURCE.timeline_table)
    (damage,) = find_damage(str(home), [SOURCE], [])
    assert "has rows of arrival 3, which 'kept_readings' has read" in damage.problem


def test_an_unfinished_promotion_of_a_source_is_not_damage(home: Path) -> None:
    store = open_store(home)
    shutil.rmtree(home / SOURCE.timeline_table)
    assert checked(home) == [SOURCE.timeline_table]
    operations.record_begin(store, operations.Kind.PROMOTE, tables_of.source_owner(SOURCE.name))
    assert checked(home) == []
    with pytest.raises(DataError, match=r"`tidemark rebuild readings --promote`, begun at"):
        arrive(open_store(home), 0)


def mixed(moments: list[Path], target: Path, at: dict[str, int]) -> None:
    """Copy a home as if it changed during the copy: each table as of another moment."""
    for table in (p.name for p in moments[-1].iterdir() if (p / LOG).exists()):
        there = moments[at.get(table, len(moments) - 1)] / table
        if there.exists():
            shutil.copytree(there, target / table)


def test_an_event_log_older_than_its_timeline_is_reported(
    moments: list[Path], tmp_path: Path
) -> None:
    home = tmp_path / "w" / "home"
    mixed(moments, home, {SOURCE.log_table: 1, SOURCE.timeline_table: 2})
    assert SOURCE.log_table in checked(home)


def with_arrivals(home: Path, arrivals: Sequence[int]) -> None:
    """Let the timeline have these arrivals."""
    timeline = DeltaTable(str(home / SOURCE.timeline_table))
    rows = timeline.to_pyarrow_table().sort_by("arrival")
    write_deltalake(timeline, rows.take(pa.array(arrivals, pa.int64())), mode="overwrite")


SEQUENCES = [
    arrivals
    for count in (2, 3, 4, 5)
    for arrivals in itertools.combinations_with_replacement(range(4), count)
    if len(arrivals) > len({*arrivals}) or [*arrivals] != [*range(count)]
]
"""Timelines of up to five rows with a missing or repeated arrival."""


@pytest.mark.parametrize("arrivals", SEQUENCES[::9], ids=str)
def test_a_timeline_with_a_missing_or_repeated_arrival_is_named(
    home: Path, arrivals: Sequence[int]
) -> None:
    with_arrivals(home, arrivals)
    intact = next(n for n, arrival in enumerate(arrivals) if n != arrival)
    found = find_damage(str(home), [SOURCE], [ASSET])
    problems = [damage.problem for damage in found if damage.table == SOURCE.timeline_table]
    lacking = f"lacks arrival {intact}, but has arrival {arrivals[-1]} (version "
    repeated = f"has arrival {arrivals[intact]} more than once (version "
    expected = lacking if arrivals[intact] > intact else repeated
    assert any(problem.startswith(expected) for problem in problems), problems
    assert not [damage for damage in found if damage.table == SOURCE.log_table]
