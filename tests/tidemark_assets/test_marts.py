"""Test the marts that Dagster builds with dbt: only changed days are recomputed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from uuid import uuid4

import dagster as dg
import grpc
import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.session import SparkSession as ConnectSession

from conftest import SHORT_LIVED
from helpers.dagster import ticks
from helpers.dagster.steps import OnTestSession
from helpers.processes.commands import call, surround
from helpers.processes.failing_engine import FAULTS, FailingEngine, serve
from helpers.suite.pages import commands
from tidemark import engine as spark_engine
from tidemark.base.errors import DefinitionError, EngineLostError
from tidemark.base.settings import Settings
from tidemark.define.window_columns import published_columns
from tidemark.engine.ports import free_port
from tidemark.engine.server import managed_of
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base import steps
from tidemark_assets.base.names import with_prefix
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.definitions import build_definitions
from tidemark_assets.flights.connectors import ingestion
from tidemark_assets.flights.transforms import departures_by_carrier
from tidemark_assets.marts import mart_assets, mart_sensor
from tidemark_assets.weather.transforms import temperature_hourly
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.dbt import dbt_process
from tidemark_streaming.dbt.mart_rows import resting_on
from tidemark_streaming.dbt.marts import Marts, run_dbt
from tidemark_streaming.ingest.play import play_files

# Each start of dbt takes four seconds of CPU time.
pytestmark = pytest.mark.slow

FIRST, STAGING, MART = "2013-01-01", "stg_departures_by_carrier", "daily_punctuality"
EVENT = ("arrival", "position")
COUNTS = ("day", "origin", "carrier", "flights", "cancelled", "delayed")


class Platform:
    """A warehouse of flights and its marts, built by Dagster."""

    def __init__(
        self, settings: Settings, spark: SparkSession, instance: dg.DagsterInstance
    ) -> None:
        self.settings, self.instance = settings, instance
        self.resource = OnTestSession(settings, spark, registered=True)
        self.warehouse = self.resource.warehouse
        self.marts = Warehouse(spark, settings.warehouse, f"{settings.database}_marts")
        self.definitions = dg.Definitions.merge(
            build_definitions(settings.domains, {"tidemark": self.resource}),
            dg.Definitions(assets=mart_assets(settings)),
        )

    def arrive(self, excerpt: Excerpt) -> None:
        """Ingest flights, and publish the windows that they fire."""
        landing = Path(self.settings.landing) / ingestion.source.name
        for _ in play_files(self.warehouse, ingestion, landing, excerpt, batch=None):
            pass
        incremental(self.warehouse, departures_by_carrier)

    def build(self, *names: str) -> dg.ExecuteInProcessResult:
        """Materialize models in process, as the UI would."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[dg.AssetKey(name) for name in names],
            instance=self.instance,
            raise_on_error=False,
        )

    def mart(self) -> list[tuple[object, ...]]:
        """Return the counts of the mart."""
        return sorted(
            (tuple(r) for r in self.marts.read_frame(MART).select(*COUNTS).collect()), key=str
        )

    def mark(self, day: str) -> None:
        """Mark the mart's rows of a day without failing its tests, to detect a recomputation."""
        mart = f"{self.marts.database}.{MART}"
        self.warehouse.spark.sql(f"UPDATE {mart} SET late_events = -1 WHERE day = '{day}'")

    def marked(self) -> set[str]:
        """Return the days whose rows are all marked."""
        days: dict[str, set[int]] = {}
        for r in self.marts.read_frame(MART).select("day", "late_events").collect():
            days.setdefault(str(r.day), set()).add(r.late_events)
        return {day for day, marks in days.items() if marks == {-1}}

    def spoil(self) -> None:
        """Corrupt the mart so that its test fails."""
        mart = f"{self.marts.database}.{MART}"
        self.warehouse.spark.sql(f"UPDATE {mart} SET flights = -1 WHERE day = '{FIRST}'")

    def restore(self, version: int) -> None:
        """Restore the mart to a version."""
        mart = f"{self.marts.database}.{MART}"
        self.warehouse.spark.sql(f"RESTORE TABLE {mart} TO VERSION AS OF {version}")

    def forget_catalog(self) -> None:
        """Remove all tables from the catalog, as a restart with an in-memory catalog does."""
        sql = self.warehouse.spark.sql
        for database in (self.marts.database, self.settings.database):
            views = {row["viewName"] for row in sql(f"SHOW VIEWS IN {database}").collect()}
            for row in sql(f"SHOW TABLES IN {database}").collect():
                kind = "VIEW" if row["tableName"] in views else "TABLE"
                sql(f"DROP {kind} {database}.{row['tableName']}")
            sql(f"DROP DATABASE {database}")

    def latest(self, *key: str) -> dg.AssetMaterialization | None:
        """Return the newest materialization of a model, or None."""
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key))
        return None if event is None else event.asset_materialization

    def checks(self, assets: dg.AssetsDefinition, name: str) -> list[bool]:
        """Return the newest results of a model's tests, sorted."""
        keys = [key for key in assets.check_keys if key.asset_key.path[-1] == name]
        found = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        events = [found[key].event for key in keys]
        return sorted(
            e.dagster_event.asset_check_evaluation_data.passed
            for e in events
            if e is not None and e.dagster_event is not None
        )

    def counted(self) -> list[tuple[object, ...]]:
        """Return the same counts from the event log: published hours, without too-late events."""
        hours = (
            self.warehouse.read_frame(departures_by_carrier.published_table)
            .select("window_start")
            .distinct()
        )
        departed = F.from_utc_timestamp("departure", "America/New_York")
        lost = self.warehouse.read_frame(departures_by_carrier.late_table).select(*EVENT)
        rows = (
            Log(self.warehouse, ingestion.source)
            .read_events(-1, 10**9)
            .join(lost, list(EVENT), "left_anti")
            .withColumns(
                {"window_start": F.date_trunc("hour", "departure"), "local": F.to_date(departed)}
            )
            .join(hours, "window_start", "left_semi")
            .groupBy(F.col("local").alias("day"), "origin", "carrier")
            .agg(
                F.count("*").alias("flights"),
                F.count_if(F.expr("dep_time is null")).alias("cancelled"),
                F.count_if(F.col("dep_delay") >= 15).alias("delayed"),
            )
        )
        return sorted((tuple(r) for r in rows.select(*COUNTS).collect()), key=str)


@pytest.fixture(scope="module")
def platform(
    engine: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """Yield a platform with two days of flights, published and built into marts."""
    settings = engine.model_copy(
        update={
            "database": f"test_{uuid4().hex[:12]}",
            "landing": str(tmp_path_factory.mktemp("landing")),
        }
    )
    folder = str(tmp_path_factory.mktemp("dagster"))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral(folder) as instance:
        surround(patch, settings)
        platform = Platform(settings, spark, instance)
        platform.arrive(Excerpt(days=2))
        assert platform.build(STAGING, MART, "asset_reliability").success
        yield platform


@pytest.fixture(scope="module")
def weather(platform: Platform) -> str:
    """Create an empty table of weather windows. Return its name."""
    columns = {
        name: kind or "DOUBLE" for name, kind in published_columns(temperature_hourly).items()
    }
    schema = ", ".join(f"{name} {of}" for name, of in columns.items())
    platform.warehouse.ensure_table(temperature_hourly.published_table, schema, feed=True)
    return f"{platform.settings.database}.{temperature_hourly.published_table}"


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the error of a run's only failed step, as the UI shows it."""
    assert not result.success
    [event] = result.filter_events(lambda e: e.is_step_failure)
    error = event.step_failure_data.error
    assert error is not None
    return error.to_string()


def test_a_mart_equals_the_counts_of_the_event_log(platform: Platform) -> None:
    assert len(platform.mart()) > 20
    assert platform.mart() == platform.counted()


def test_mart_rows_that_depend_on_a_window_are_found(
    platform: Platform,
) -> None:
    # 02:00 UTC on the 2nd is the evening of the 1st in New York.
    rows = platform.warehouse.read_frame(departures_by_carrier.published_table)
    row = rows.where("window_start = '2013-01-02T02:00:00Z'").orderBy("carrier").first()
    assert row is not None
    marts, window = Marts(platform.settings), row.asDict()
    found = resting_on(platform.warehouse, marts, departures_by_carrier, window)
    by_name = {mart.mart: mart for mart in found}
    assert set(by_name) == {"asset_reliability", MART, "delay_by_weather"}
    assert by_name["asset_reliability"].by is None
    by = {"day": date(2013, 1, 1), "origin": row.origin, "carrier": row.carrier}
    assert by_name[MART].by == by
    (mine,) = by_name[MART].rows
    assert mine.items() >= by.items()
    # This mart was not built.
    assert by_name["delay_by_weather"].by is None


def test_a_late_event_updates_only_its_day_in_the_mart(
    platform: Platform,
) -> None:
    platform.mark(FIRST)
    published = platform.warehouse.read_frame(departures_by_carrier.published_table)
    before = {(r.window_start, r.origin, r.carrier): r for r in published.collect()}

    platform.arrive(Excerpt(start="2013-01-03", end="2013-01-03T06:00:00"))
    again = [
        r
        for r in platform.warehouse.read_frame(departures_by_carrier.published_table).collect()
        if r.timing == "LATE" and before.get((r.window_start, r.origin, r.carrier), r) != r
    ]
    assert again, "no published window fired again: the excerpt shows nothing"

    assert platform.mart() != platform.counted()
    assert platform.build(STAGING, MART).success
    assert platform.mart() == platform.counted()
    assert platform.marked() == {FIRST}


def test_all_days_are_computed_if_a_table_was_restored(platform: Platform, tmp_path: Path) -> None:
    """Another commit may then have the number of the version that the mart has read."""
    table = Path(
        platform.warehouse.path_of(departures_by_carrier.published_table).removeprefix("file://")
    )
    present, earlier = tmp_path / "present", tmp_path / "earlier"
    for copy in (present, earlier):
        shutil.copytree(table, copy)
    newest = sorted((earlier / "_delta_log").glob("*.json"))[-1]
    newest.unlink()
    DeltaTable(str(earlier)).delete("window_start >= '2013-01-02T12:00:00Z'")
    assert newest.exists()
    for copy in (earlier, present):
        shutil.rmtree(table)
        shutil.copytree(copy, table)
        assert platform.mart() != platform.counted()
        assert platform.build(STAGING, MART).success
        assert platform.mart() == platform.counted()


@pytest.mark.nightly
def test_deleted_windows_are_removed_from_the_mart(platform: Platform) -> None:
    platform.mark(FIRST)
    last = max(str(r[0]) for r in platform.mart())
    table = f"{platform.settings.database}.{departures_by_carrier.published_table}"
    local = "to_date(from_utc_timestamp(window_start, 'America/New_York'))"
    platform.warehouse.spark.sql(f"DELETE FROM {table} WHERE {local} = '{last}'")
    result = call("dbt", "build", MART)
    assert result.exit_code == 0, result.stderr
    assert MART in result.stdout
    assert platform.mart() == platform.counted()
    assert last not in {str(r[0]) for r in platform.mart()}
    assert platform.marked() == {FIRST}


def test_asset_reliability_reads_only_existing_tables(platform: Platform) -> None:
    every, *_ = commands("docs/dbt.md")
    built = call(*every)
    assert built.exit_code == 0, built.stderr
    rows = platform.marts.read_frame("asset_reliability").collect()
    assert {r.asset for r in rows} == {departures_by_carrier.name}
    late = platform.warehouse.read_frame(departures_by_carrier.late_loss_table)
    assert sum(r.lost_events for r in rows) == late.agg({"lost_events": "sum"}).collect()[0][0]


def test_a_missing_table_fails_only_its_mart_with_a_message(
    platform: Platform,
) -> None:
    whole = platform.marts.newest_version(MART)
    platform.spoil()
    result = platform.build("stg_aircraft_days", "aircraft_utilisation", STAGING, MART)
    error = failure(result)
    assert "Failure: 'aircraft_utilisation' reads the table 'aircraft_days'" in error
    assert "first materialize 'aircraft_days'" in error
    assert "Test 'holds_daily_punctuality_" in error, "the sentence hides the test that failed"
    assert "DataError" not in error
    built = {e.asset_key.path[-1] for e in result.get_asset_materialization_events() if e.asset_key}
    assert built == {STAGING, MART}
    platform.restore(whole)


@pytest.fixture(scope="module")
def alone(platform: Platform) -> dg.ExecuteInProcessResult:
    """Build only the mart after its view was dropped. Return the result."""
    platform.warehouse.spark.sql(f"DROP VIEW {platform.marts.database}.{STAGING}")
    return platform.build(MART)


def test_a_build_of_one_mart_recreates_its_views(
    platform: Platform, alone: dg.ExecuteInProcessResult
) -> None:
    assert alone.success
    view = f"{platform.marts.database}.{STAGING}"
    assert platform.warehouse.spark.catalog.tableExists(view)


@pytest.mark.nightly
def test_marts_find_their_tables_after_the_catalog_was_lost(platform: Platform) -> None:
    before = platform.mart()
    platform.mark(FIRST)
    ways = (
        lambda: platform.build(MART).success,
        lambda: call("dbt", "build", MART).exit_code == 0,
        lambda: _run_dbt("build", "--select", f"+{MART}", "--exclude", "test_type:unit"),
    )
    for build in ways:
        platform.forget_catalog()
        assert build()
        assert platform.mart() == before
        # The table is unchanged: days without changes were not recomputed.
        assert platform.marked() == {FIRST}
    assert call("dbt", "build", MART, "--full-refresh").exit_code == 0


@pytest.mark.nightly
def test_an_erasure_rebuilds_marts_after_the_catalog_was_lost(platform: Platform) -> None:
    platform.forget_catalog()
    erased = call("erase", "flights", "--where", "tailnum = 'N725MQ'", "--yes")
    assert erased.exit_code == 0, erased.stderr
    assert platform.mart() == platform.counted()


def _run_dbt(*arguments: str) -> bool:
    tidemark = Path(sys.executable).with_name("tidemark")
    done = subprocess.run([tidemark, "dbt", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


@pytest.mark.nightly
def test_a_mart_over_two_tables_follows_changes_of_both(platform: Platform, weather: str) -> None:
    mart = "delay_by_weather"
    assert platform.build("stg_weather", STAGING, mart).success
    unknown = platform.marts.read_frame(mart).count()
    assert platform.marts.read_frame(mart).where("conditions = 'unknown'").count() == unknown > 20

    place = f"{platform.marts.database}.{mart}"
    reading = {
        "window_start": "hour",
        "window_end": "hour",
        "origin": "origin",
        "final": "true",
        "temperature": "40D",
        "gust": "30D",
        "visibility": "10D",
        "precipitation": "0D",
        "events": "1L",
        "late_events": "0L",
        "revision": "0",
    }
    values = ", ".join(reading.get(name, "null") for name in published_columns(temperature_hourly))
    one = f"SELECT * FROM {place} ORDER BY hour, origin LIMIT 1"
    platform.warehouse.spark.sql(f"INSERT INTO {weather} SELECT {values} FROM ({one})")
    assert platform.build(mart).success
    assert platform.marts.read_frame(mart).where("conditions = 'windy'").count() == 1
    assert platform.marts.read_frame(mart).where("conditions = 'unknown'").count() == unknown - 1


@pytest.mark.nightly
def test_asset_reliability_refuses_a_table_without_window_columns(platform: Platform) -> None:
    stub = "departures_hourly"
    platform.warehouse.ensure_table(stub, "window_start TIMESTAMP, events BIGINT, origin STRING")
    error = failure(platform.build("asset_reliability"))
    platform.warehouse.drop_table(stub)
    assert "Mart 'asset_reliability' failed: " in error
    assert (
        "'departures_hourly' in models/sources.yml lacks final, late_events, revision, which all "
        "windows of Tidemark's have: name a table of another kind in a source of its own" in error
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("weather")
def test_marts_under_a_prefix_have_prefixed_keys_checks_and_lineage(
    platform: Platform,
) -> None:
    names = with_prefix("trials/dev")
    [assets] = mart_assets(platform.settings, "trials/dev")
    definitions = dg.Definitions(
        assets=[assets],
        resources={names.resource: platform.resource},
        executor=dg.in_process_executor,
    )
    wanted = [names.key(name) for name in (STAGING, MART, "asset_reliability")]
    before = platform.latest(MART)
    done = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=wanted, instance=platform.instance, raise_on_error=False
    )
    assert done.success
    made = {e.asset_key: e.materialization for e in done.get_asset_materialization_events()}
    assert set(made) == set(wanted)
    checked = done.get_asset_check_evaluations()
    assert {(c.asset_key, c.passed) for c in checked} == {(key, True) for key in wanted[1:]}
    lineage = made[names.key(MART)].metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    [origin] = lineage.deps_by_column["delayed"]
    assert (origin.asset_key, origin.column_name) == (names.key(STAGING), "delayed")
    graph = definitions.resolve_asset_graph()
    assert (
        names.key(departures_by_carrier.published_table)
        in graph.get(names.key(STAGING)).parent_keys
    )
    assert graph.get(names.key(MART)).group_name == "trials_dev_marts"
    # The materializations without a prefix are unchanged.
    assert platform.latest(MART) == before


def test_lineage_runs_from_the_source_to_columns_of_the_mart(
    platform: Platform, alone: dg.ExecuteInProcessResult
) -> None:
    graph = platform.definitions.resolve_asset_graph()
    above = graph.get_ancestor_asset_keys(dg.AssetKey(MART))
    assert {"flights_connector", "flights_log", "departures_by_carrier", STAGING} <= {
        key.to_user_string() for key in above
    }
    node = graph.get(dg.AssetKey(MART))
    assert (node.group_name, node.pools) == ("marts", {"tidemark_engine"})
    assert (node.kinds, node.owners) == ({"dbt", "spark", "deltalake"}, ["team:flights"])
    [event] = alone.asset_materializations_for_node("marts")
    lineage = event.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    [origin] = lineage.deps_by_column["delayed"]
    assert (origin.asset_key, origin.column_name) == (dg.AssetKey(STAGING), "delayed")


def test_dbt_tests_are_checks_of_their_asset(alone: dg.ExecuteInProcessResult) -> None:
    checks = alone.get_asset_check_evaluations()
    assert len(checks) == 2
    assert {(c.asset_key.path[-1], c.passed) for c in checks} == {(MART, True)}


def test_command_line_builds_are_reported_to_dagster(platform: Platform) -> None:
    [assets] = mart_assets(platform.settings)
    now = json.dumps({"builds": {platform.settings.database: time.time_ns()}})
    sensor = mart_sensor(platform.settings, assets)
    reports = ticks.Ticks(sensor, platform.instance, platform.settings, cursor=now)
    assert reports.skipped() == "No new builds."

    _, one, _ = commands("docs/dbt.md")
    assert one == ["dbt", "build", MART]
    platform.mark(FIRST)
    platform.spoil()
    result = call(*one)
    assert result.exit_code == 2, result.stdout
    assert "failed" in result.stderr
    assert reports.skipped() == "Reported 4 marts and tests."
    stood = platform.latest(MART)
    assert stood is not None
    assert stood.metadata["made by"].value == "the command line"
    assert platform.checks(assets, MART) == [False, True]
    assert reports.skipped() == "No new builds."

    assert call(*one, "--full-refresh").exit_code == 0
    assert platform.mart() == platform.counted()
    assert platform.marked() == set()
    reports.tick()
    assert platform.checks(assets, MART) == [True, True]

    [trials] = mart_assets(platform.settings, "trials")
    sensor = mart_sensor(platform.settings, trials, with_prefix("trials"))
    ticks.Ticks(sensor, platform.instance, platform.settings, cursor=now).tick()
    stood = platform.latest("trials", MART)
    assert stood is not None
    assert stood.metadata["made by"].value == "the command line"
    assert platform.checks(trials, MART) == [True, True]


@pytest.mark.nightly
@pytest.mark.usefixtures("weather")
def test_the_dbt_unit_tests_pass(platform: Platform) -> None:
    settings = platform.settings
    variables = Marts(settings).environment_variables(spark_engine.ensure_engine(settings))
    run_dbt(["run", "--select", "stg_weather"], variables)
    said = run_dbt(["test", "--select", "test_type:unit", "--no-use-colors"], variables)
    assert "ERROR=0" in said
    assert "PASS=2" in said, said


def test_logs_of_dbt_and_dagster_never_contain_the_token(platform: Platform) -> None:
    token = (platform.settings.home / "token").read_text().strip()
    home = platform.settings.home
    written = [p for folder in ("marts", "logs") for p in (home / folder).rglob("*") if p.is_file()]
    assert any(p.name == "dbt.log" for p in written)
    assert not [p for p in written if token.encode() in p.read_bytes()]
    instance = platform.instance
    logged = [str(entry) for r in instance.get_runs() for entry in instance.all_logs(r.run_id)]
    assert len(logged) > 50
    assert not [text for text in logged if token in text]


def test_a_missing_dbt_project_defines_no_marts(tmp_path: Path) -> None:
    assert mart_assets(Settings(home=tmp_path, marts=tmp_path / "none")) == []


def test_dbt_tests_with_the_same_name_are_refused(tmp_path: Path) -> None:
    """dbt derives one name for two tests, and Dagster would drop one (Dagster 34155)."""
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    project = "name: shop\nprofile: tidemark\nmodel-paths: [models]\n"
    (folder / "dbt_project.yml").write_text(project)
    (folder / "models/m.sql").write_text("select 'a-b' as x, 1 as y")
    test = "        - accepted_values: {{{}arguments: {{values: ['{}']}}}}\n"
    head = "models:\n  - name: m\n    columns:\n      - name: x\n        data_tests:\n"
    tests = folder / "models/m.yml"
    tests.write_text(head + test.format("", "a-b") + test.format("", "a b"))
    settings = Settings(home=tmp_path / "home", marts=folder)
    with pytest.raises(DefinitionError, match=r"Model 'm' has 2 tests named 'acc.* in models/m\.y"):
        mart_assets(settings)
    tests.write_text(head + test.format("", "a-b") + test.format("name: spaced, ", "a b"))
    (built,) = mart_assets(settings)
    assert len([*built.check_keys]) == 2


@pytest.mark.parametrize("name", ["departures_by_carrier", "flights_log"])
def test_a_model_with_the_name_of_an_asset_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    (folder / "dbt_project.yml").write_text("name: own\nprofile: tidemark\n")
    (folder / f"models/{name}.sql").write_text("select 1 as x")
    with pytest.raises(DefinitionError, match=rf"'{name}' in models/{name}\.sql has the name of"):
        mart_assets(Settings(home=tmp_path / "home", marts=folder))


def test_an_unreadable_dbt_project_is_refused_with_a_message(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "dbt_project.yml").write_text("name: broken\nprofile: broken\n")
    with pytest.raises(DefinitionError, match=r"dbt can't read the project in .*profile"):
        mart_assets(Settings(home=tmp_path / "home", marts=folder))


def project_of_one_mart(folder: Path) -> Path:
    """Return the folder of a new dbt project."""
    project = folder / "project"
    (project / "models").mkdir(parents=True)
    (project / "dbt_project.yml").write_text("name: shop\nprofile: tidemark\n")
    (project / "models/m.sql").write_text("{{ config(materialized='table') }} select 1 as x")
    return project


@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")
@pytest.mark.parametrize("fault", ["UNAVAILABLE", "SESSION_NOT_FOUND"])
def test_a_build_whose_engine_is_lost_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """dbt's client would wait ten minutes for an engine that does not answer. For dbt, the loss of
    a session is a failure of a model or of a hook."""
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0, 0))
    # Sessions of earlier tests would be found.
    monkeypatch.setattr(ConnectSession, "_default_session", None)
    monkeypatch.setattr(ConnectSession, "_active_session", threading.local())
    settings = Settings(home=tmp_path / "home", marts=project_of_one_mart(tmp_path))
    clients = set[str]()

    def fail_since_dbt_asked(engine: FailingEngine, context: grpc.ServicerContext) -> None:
        clients.add(context.peer())
        if len(clients) > 1:
            FAULTS[fault](engine, context)

    with serve() as (engine, port):
        engine.fault = fail_since_dbt_asked
        monkeypatch.setattr(TidemarkResource, "address", f"sc://127.0.0.1:{port}")
        definitions = dg.Definitions(
            assets=mart_assets(settings), resources={"tidemark": TidemarkResource(settings)}
        )
        job = definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(raise_on_error=False)

    retries = done.filter_events(lambda event: event.is_step_restarted)
    assert len(retries) == 2
    assert str(EngineLostError()) in failure(done)


# Kills its own engine.
@pytest.mark.nightly
@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")
def test_a_build_whose_engine_is_killed_succeeds_on_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0, 0))
    monkeypatch.setattr(ConnectSession, "_default_session", None)
    monkeypatch.setattr(ConnectSession, "_active_session", threading.local())
    settings = Settings(
        home=tmp_path / "home",
        marts=project_of_one_mart(tmp_path),
        engine_port=free_port(),
        engine_memory="1g",
        engine_java_options=SHORT_LIVED,
        engine_archive=False,
    )
    resource = TidemarkResource(settings)
    definitions = dg.Definitions(assets=mart_assets(settings), resources={"tidemark": resource})
    job = definitions.resolve_implicit_global_asset_job_def()
    spark_engine.ensure_engine(settings)
    killed = managed_of(settings).find_running()
    assert killed is not None

    def kill_while_dbt_runs() -> None:
        while not any(
            process.info["ppid"] == os.getpid()
            and dbt_process.MODULE in (process.info["cmdline"] or ())
            for process in psutil.process_iter(["ppid", "cmdline"])
        ):
            time.sleep(0.1)
        time.sleep(3)
        os.kill(killed.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_while_dbt_runs, daemon=True)
    killer.start()
    try:
        done = job.execute_in_process(resources={"tidemark": resource}, raise_on_error=False)
        killer.join()
        assert done.success
        assert done.filter_events(lambda event: event.is_step_restarted)
        rows = resource.session.sql(f"SELECT x FROM {settings.database}_marts.m").collect()
        assert [row.x for row in rows] == [1]
        assert managed_of(settings).find_running() not in (None, killed)
    finally:
        spark_engine.stop_engine(settings)
