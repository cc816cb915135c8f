"""Test in-process steps on the tests' engine: they materialize the results of the core."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helpers.dagster.staleness import causes
from helpers.dagster.steps import OnTestSession
from helpers.dagster.ticks import of_part
from tidemark.base.instants import parse_instant
from tidemark.base.settings import Settings
from tidemark.run.runner import backfill
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.base import steps as retries
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.definitions import build_definitions
from tidemark_assets.flights.definitions import presentation
from tidemark_assets.flights.sources import flights
from tidemark_assets.flights.transforms import carrier_months, departures_hourly
from tidemark_assets.metadata import side_tables
from tidemark_assets.metadata.describe import UNKNOWN_TYPE
from tidemark_assets.sensors import partitions
from tidemark_assets.sensors.ingests import ingests_reporter
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_streaming.home.domains import load_domains

LOG, WINDOWS, DAILY = "flights_log", "departures_hourly", "departures_daily"
RANGE: tuple[str, str] = (
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
)


class Platform:
    """Definitions, an instance of Dagster and a warehouse, shared by the tests of this module."""

    def __init__(self, resource: TidemarkResource, instance: dg.DagsterInstance) -> None:
        self.resource, self.instance = resource, instance
        self.definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": resource})

    def materialize(
        self,
        *assets: str,
        partition_key: str | None = None,
        partition_range: tuple[str, str] | None = None,
        run_config: Mapping[str, object] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Materialize assets in process, as the UI would."""
        tags = dict(zip(RANGE, partition_range, strict=True)) if partition_range else None
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[dg.AssetKey(asset) for asset in assets],
            instance=self.instance,
            raise_on_error=False,
            partition_key=partition_key,
            tags=tags,
            run_config=run_config,
        )


@pytest.fixture(scope="module")
def platform(
    engine: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """Yield a platform with the first three days of flights in its event log."""
    settings = engine.model_copy(
        update={
            "database": f"test_{uuid4().hex[:12]}",
            "landing": str(tmp_path_factory.mktemp("landing")),
        }
    )
    with dg.DagsterInstance.ephemeral(str(tmp_path_factory.mktemp("dagster"))) as instance:
        platform = Platform(OnTestSession(settings, spark), instance)
        config = {"ops": {"ingest_flights": {"config": {"play_days": 3}}}}
        assert platform.materialize(LOG, run_config=config).success
        yield platform


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the error of a run's only failed step, as the UI shows it."""
    assert not result.success
    [event] = result.filter_events(lambda e: e.is_step_failure)
    error = event.step_failure_data.error
    assert error is not None
    return error.to_string()


def rows(warehouse: Warehouse, table: str) -> list[tuple[object, ...]]:
    """Return the rows of a table without the columns that identify runs."""
    found = warehouse.read_frame(table).drop("commit_number", "as_of")
    return sorted((tuple(row) for row in found.collect()), key=str)


def recorded(platform: Platform, asset: str, partition: str | None = None) -> dict[str, Any]:
    """Return the metadata of the newest materialization."""
    found = platform.instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=dg.AssetKey(asset), asset_partitions=[partition] if partition else None
        ),
        limit=1,
    )
    metadata = found.records[0].asset_materialization
    assert metadata is not None
    return {name: getattr(v, "value", v) for name, v in metadata.metadata.items()}


def test_an_ingest_reports_its_arrivals_and_rows(platform: Platform) -> None:
    facts = recorded(platform, "flights_log")
    timeline = platform.resource.warehouse.read_frame("flights_timeline")
    assert facts["arrivals"] == timeline.count() == 12
    assert facts["rows"] == facts["dagster/row_count"]
    assert facts["rows"] == platform.resource.warehouse.read_frame("flights_log").count()
    assert facts["arrival range"] == "0 to 11"
    assert facts["rows in flights_dead_letters"] == 0
    assert facts["rows in flights_timeline"] == 12
    settings, source = platform.resource.settings, departures_hourly.source
    ticks = of_part(ingests_reporter(source), platform.instance, settings)
    assert ticks.skipped() == "Dagster knows all arrivals of 'flights'."


def test_an_ingest_without_pending_data_reports_no_arrivals(platform: Platform) -> None:
    rows_before = recorded(platform, "flights_log")["dagster/row_count"]
    assert platform.materialize(LOG).success
    facts = recorded(platform, "flights_log")
    folder = Path(platform.resource.warehouse.path_of("flights_log"))
    assert facts["table bytes"] == sum(path.stat().st_size for path in folder.glob("**/*.parquet"))
    assert (facts["arrivals"], facts["arrival range"]) == (0, "none")
    assert facts["dagster/row_count"] == rows_before


def test_a_partition_contains_only_the_windows_of_its_day(platform: Platform) -> None:
    assert platform.materialize(WINDOWS, partition_key="2013-01-02").success
    warehouse = platform.resource.warehouse
    days = {
        str(row[0].date()) for row in warehouse.read_frame(WINDOWS).select("window_start").collect()
    }
    assert days == {"2013-01-02"}
    facts = recorded(platform, WINDOWS, "2013-01-02")
    assert facts["dagster/partition_row_count"] == warehouse.read_frame(WINDOWS).count()
    assert facts["events in windows"] == 928
    # Another ingest does not change the data version of the log.
    assert platform.materialize(LOG).success
    assert causes(platform.instance, platform.definitions, WINDOWS, "2013-01-02") == []


def test_a_partition_range_is_one_run_that_equals_a_backfill(platform: Platform) -> None:
    first, last = "2013-01-01", "2013-01-03"
    result = platform.materialize(WINDOWS, partition_range=(first, last))
    assert result.success
    assert len(result.asset_materializations_for_node("departures_hourly")) == 3
    warehouse = platform.resource.warehouse
    assert check_parity(warehouse, departures_hourly).is_equal

    days = [recorded(platform, WINDOWS, f"2013-01-0{day}") for day in (1, 2, 3)]
    events = [day["events in windows"] for day in days]
    tables = [departures_hourly.published_table, *departures_hourly.late_tables]
    published = {table: rows(warehouse, table) for table in tables}
    assert sum(events) == warehouse.read_frame(WINDOWS).agg({"events": "sum"}).collect()[0][0]
    # `reported=True` marks the run as Dagster's, so the window sensor does not report it.
    end = parse_instant("2013-01-04")
    backfill(warehouse, departures_hourly, parse_instant(first), end, reported=True)
    assert {table: rows(warehouse, table) for table in tables} == published


def test_run_config_can_include_late_events(platform: Platform) -> None:
    config = {"ops": {"departures_hourly": {"config": {"late_events": "include"}}}}
    assert platform.materialize(WINDOWS, partition_key="2013-01-02", run_config=config).success
    facts = recorded(platform, WINDOWS, "2013-01-02")
    assert facts["late events option"] == "include"
    assert isinstance(facts["late events in windows"], int)
    assert facts["events in windows"] == facts["run events"] == 930


def test_a_partition_without_events_fails_with_a_message(platform: Platform) -> None:
    error = failure(platform.materialize(WINDOWS, partition_key="2013-06-01"))
    assert error.startswith(
        "dagster._core.definitions.events.Failure: No event of 'flights' from "
        "2013-06-01T00:00:00Z to 2013-06-02T00:00:00Z has arrived (there are events from "
    )
    assert "DataError" not in error


def test_an_increment_after_full_backfills_changes_nothing(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = platform.definitions.resolve_job_def("flights_catch_up")
    assert job.execute_in_process(instance=platform.instance).success
    warehouse, settings = platform.resource.warehouse, platform.resource.settings
    report = check_parity(warehouse, departures_hourly)
    assert report.as_of == 11
    # An earlier test computed the second day including late events.
    assert {d.kind for d in report.differences} == {"late_loss"}
    found = load_domains(["tidemark_assets.flights"])
    sensor = partitions_reporter(found.transforms, presentation.partitions_of, 10**12)
    ticks = of_part(sensor, platform.instance, settings)
    monkeypatch.setattr(partitions, "REPORT_TIMEOUT_MICROS", 10**15)
    assert ticks.skipped() == "No new runs except those that report themselves."
    # All steps reported their runs, but no step reported the backfill with `reported=True`.
    # Its second day has been recomputed since, and its third has not closed.
    monkeypatch.setattr(partitions, "REPORT_TIMEOUT_MICROS", 0)
    assert ticks.skipped() == "departures_hourly: 1 partitions reported"
    assert (
        recorded(platform, "departures_hourly", "2013-01-01")["made by"]
        == partitions.UNREPORTED_RUN
    )
    assert "made by" not in recorded(platform, "departures_hourly", "2013-01-02")
    assert ticks.skipped() == "No new runs except those that report themselves."


@pytest.mark.slow
def test_a_session_backfill_reports_every_day_it_computed(platform: Platform) -> None:
    platform.resource.warehouse.drop_table("aircraft_days_state")
    assert platform.materialize("aircraft_days", partition_key="2013-01-02").success
    days = platform.resource.warehouse.read_frame("aircraft_days").groupBy(
        F.to_date("window_start")
    )
    counts = {str(day): count for day, count in days.count().collect()}
    assert counts.keys() == {"2013-01-01", "2013-01-02", "2013-01-03"}
    for day, count in counts.items():
        assert recorded(platform, "aircraft_days", day)["dagster/partition_row_count"] == count
    status = platform.instance.get_materialized_partitions(dg.AssetKey("aircraft_days"))
    assert status == counts.keys()
    # The next run computes only the requested day.
    runs = {day: recorded(platform, "aircraft_days", day)["run"] for day in counts}
    assert platform.materialize("aircraft_days", partition_key="2013-01-02").success
    again = {day: recorded(platform, "aircraft_days", day)["run"] for day in counts}
    assert {day for day in counts if runs[day] != again[day]} == {"2013-01-02"}


def test_a_new_york_month_is_one_partition(platform: Platform) -> None:
    name, panes = carrier_months.published_table, carrier_months.panes_table
    assert platform.materialize(name, partition_key="2013-01-01").success
    warehouse = platform.resource.warehouse
    facts = recorded(platform, name, "2013-01-01")
    assert facts["dagster/partition_row_count"] == warehouse.read_frame(name).count() > 10
    assert facts[f"rows in {panes}"] == warehouse.read_frame(panes).count() > 10
    [told] = [
        t.columns.columns
        for t in side_tables.transform_side_tables(carrier_months)
        if t.name == panes
    ]
    there = warehouse.read_frame(panes).schema
    assert {column.name for column in told} == set(there.names)
    for column in told:
        assert column.type in (UNKNOWN_TYPE, there[column.name].dataType.simpleString()), column
    error = failure(platform.materialize(name, partition_key="2013-03-01"))
    assert "from 2013-03-01T05:00:00Z to 2013-04-01T04:00:00Z has arrived" in error


def test_an_unknown_partition_is_refused_by_name(platform: Platform) -> None:
    with pytest.raises(dg.DagsterUnknownPartitionError, match="2014-01-02"):
        platform.materialize(WINDOWS, partition_key="2014-01-02")


def test_an_unreachable_engine_fails_with_a_message(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS_SECONDS", (0,))
    settings = Settings(home=tmp_path, remote="sc://localhost:1", token="wrong")
    gone = Platform(TidemarkResource(settings), platform.instance)
    error = failure(gone.materialize(LOG))
    assert "Failure: No engine answers at sc://localhost:1" in error
    assert "EngineError" not in error
    assert "wrong" not in error


def test_run_events_never_contain_the_token(platform: Platform, engine: Settings) -> None:
    token = (engine.home / "token").read_text().strip()
    instance = platform.instance
    told = [
        str(part)
        for run in instance.get_runs()
        for part in (run, *(entry for entry in instance.all_logs(run.run_id)))
    ]
    assert len(told) > 50
    assert not [text for text in told if token in text]


def test_a_rollup_is_computed_from_its_base_partition(platform: Platform) -> None:
    warehouse = platform.resource.warehouse
    backfill(warehouse, departures_hourly, parse_instant("2013-01-02"), parse_instant("2013-01-03"))
    result = platform.materialize(DAILY, partition_key="2013-01-02")
    assert result.success
    day = F.to_date("window_start") == "2013-01-02"
    hours, days = (warehouse.read_frame(table).where(day) for table in (WINDOWS, DAILY))
    by_airport = {r[0]: r[1] for r in hours.groupBy("origin").sum("flights").collect()}
    assert {r["origin"]: r["flights"] for r in days.collect()} == by_airport
    facts = recorded(platform, DAILY, "2013-01-02")
    assert facts["dagster/partition_row_count"] == 3
    assert facts["events in windows"] == sum(by_airport.values())
    assert {(e.check_name, e.passed) for e in result.get_asset_check_evaluations()} >= {
        ("between_mean_delay_minus_60_300", True),
        ("matches_log", True),
    }
    error = failure(platform.materialize(DAILY, partition_key="2013-06-01"))
    assert "Failure: No window of 'departures_daily' from 2013-06-01T00:00:00Z" in error
    assert "Materialize 'departures_hourly' for that range" in error


def test_a_partition_without_events_between_others_is_empty(platform: Platform) -> None:
    """Dagster 17745, 34219: a day on which nothing happened is computed like any other."""
    settings = platform.resource.settings
    header = ",".join(flights.record_fields)
    later = "2013-01-08T00:00:00Z" + "," * (len(flights.record_fields) - 1)
    (Path(settings.landing) / "flights" / "later.csv").write_text(f"{header}\n{later}\n")
    assert platform.materialize(LOG).success
    assert platform.materialize(WINDOWS, partition_key="2013-01-06").success
    assert recorded(platform, WINDOWS, "2013-01-06")["dagster/partition_row_count"] == 0
    assert platform.materialize(WINDOWS, partition_range=("2013-01-05", "2013-01-07")).success
    error = failure(platform.materialize(WINDOWS, partition_key="2013-01-10"))
    assert "No event of 'flights' from 2013-01-10T00:00:00Z" in error
