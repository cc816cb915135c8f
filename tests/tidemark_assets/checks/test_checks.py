"""Test expectations in Dagster: asset checks, the quarantine and its two operations."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gated.definitions import presentation
from gated.readings import ARRIVALS
from gated.transforms import gated
from helpers.dagster.shown import shown
from helpers.dagster.staleness import causes
from helpers.dagster.steps import OnTestSession
from helpers.dagster.ticks import of_part
from helpers.data.judgements import judged, promoted, publish, withhold
from helpers.data.support import READINGS, T0, Event, check_results, ingest
from helpers.suite.scrapes import scraped, value
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.run.change.rebuild import promote_tables, rebuild_tables, roll_back
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks import checks
from tidemark_assets.definitions import build_definitions
from tidemark_assets.jobs.operations import chosen
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.snapshot.snapshot import Snapshot

BETWEEN, NOT_NULL, COMPLETE = "between_most_max_value_5", "not_null_sensor", "matches_log"
FITS, SEEN = "values_fit", "too large: total"


class Platform:
    """The domain `gated` with an instance of Dagster and a warehouse."""

    def __init__(self, resource: TidemarkResource, instance: dg.DagsterInstance) -> None:
        self.warehouse, self.instance = resource.warehouse, instance
        self.definitions = build_definitions(["gated"], {"tidemark": resource})

    def run(self, operation: str, decision: dict[str, object]) -> dg.ExecuteInProcessResult:
        return self.definitions.resolve_job_def("gated_operations").execute_in_process(
            run_config=chosen("gated_operation", operation, decision),
            instance=self.instance,
            raise_on_error=False,
        )


@pytest.fixture(scope="module")
def platform(engine: Settings, spark: SparkSession) -> Iterator[Platform]:
    """Yield a platform with three days of readings, computed by one single-run backfill."""
    settings = engine.model_copy(update={"database": f"checks_{uuid4().hex[:12]}"})
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(OnTestSession(settings, spark), instance)
        ingest(platform.warehouse, READINGS, ARRIVALS)
        result = platform.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey("gated")],
            instance=instance,
            tags={
                "dagster/asset_partition_range_start": "2023-11-14",
                "dagster/asset_partition_range_end": "2023-11-16",
            },
        )
        assert result.success
        yield platform


def newest(platform: Platform, check: str) -> dg.AssetCheckEvaluation:
    """Return the newest evaluation of a check, which Dagster shows."""
    key = dg.AssetCheckKey(dg.AssetKey("gated"), check)
    [record] = platform.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.status.value in ("SUCCEEDED", "FAILED"), "a check stays planned"
    assert record.event is not None
    event = record.event.dagster_event
    assert event is not None
    return event.asset_check_evaluation_data


def test_each_expectation_is_a_check(platform: Platform) -> None:
    between, not_null, complete = (newest(platform, c) for c in (BETWEEN, NOT_NULL, COMPLETE))
    assert (between.passed, not_null.passed, complete.passed) == (False, False, True)
    assert between.severity is dg.AssetCheckSeverity.ERROR
    assert not_null.severity is dg.AssetCheckSeverity.WARN
    assert between.description == "1 failed, the first at 2023-11-15T22:14:00Z: `9`"
    listed = shown(between.metadata["failures"])
    assert '| 2023-11-15T22:14:00Z | {"sensor":"a"} | 9 |' in listed


def test_only_a_promotion_resolves_a_failed_check(platform: Platform, engine: Settings) -> None:
    """A rollback makes the check fail again."""
    job = platform.definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(
        asset_selection=[dg.AssetKey("gated")],
        instance=platform.instance,
        partition_key="2023-11-14",
    ).success
    assert not newest(platform, BETWEEN).passed
    assert not newest(platform, NOT_NULL).passed

    def mended(readings: DataFrame) -> DataFrame:
        value = F.least("value", F.lit(5.0)).cast(readings.schema["value"].dataType)
        return readings.withColumn("value", value)

    fixed = replace(gated, function=mended)
    here = engine.model_copy(update={"database": platform.warehouse.database})
    sensor = partitions_reporter({"gated": fixed}, lambda _: presentation.partitions, 10**15)
    ticks = of_part(sensor, platform.instance, here)
    ticks.tick()
    assert not newest(platform, BETWEEN).passed
    rebuild_tables(platform.warehouse, fixed)
    promote_tables(platform.warehouse, fixed)
    ticks.tick()
    assert newest(platform, BETWEEN).description == "as expected"
    roll_back(platform.warehouse, fixed)
    ticks.tick()
    assert not newest(platform, BETWEEN).passed


def test_quarantined_rows_are_reported_by_partition(platform: Platform) -> None:
    found = platform.instance.fetch_materializations(dg.AssetKey("gated"), limit=3, ascending=True)
    told = {r.partition_key: r.asset_materialization for r in found.records}
    held = {
        day: made.metadata["rows in gated_quarantine"].value for day, made in told.items() if made
    }
    assert held == {"2023-11-14": 0, "2023-11-15": 1, "2023-11-16": 0}
    # The image of the checks' history covers the whole run and is on its newest partition.
    drawn = {day: made.metadata.get("history") for day, made in told.items() if made}
    assert str(getattr(drawn.pop("2023-11-16"), "value", "")).startswith(
        "![history](data:image/svg+xml;base64,"
    )
    assert [*drawn.values()] == [None, None]


def test_releasing_a_window_materializes_its_partition(platform: Platform) -> None:
    with pytest.raises(
        dg.DagsterInvalidConfigError, match="not in enum type assets_with_expectations"
    ):
        platform.run("release", {"asset": "other"})
    # No window has a null key.
    assert not platform.run("release", {"asset": "gated", "keys": {"sensor": None}}).success
    result = platform.run("release", {"asset": "gated", "keys": {"sensor": "a"}})
    assert result.success
    released = [e for e in result.all_events if e.is_step_materialization]
    assert [e.partition for e in released] == ["2023-11-15"]
    assert causes(platform.instance, platform.definitions, "gated", "2023-11-15") == []
    tags = released[0].step_materialization_data.materialization.tags or {}
    assert tags[CODE_VERSION_TAG] == compute_fingerprint(gated)
    row = platform.warehouse.read_frame("gated").where("most = 9").collect()
    assert [r["quality"] for r in row] == ["released"]
    assert newest(platform, BETWEEN).passed
    nothing = platform.run("discard", {"asset": "gated"})
    assert not nothing.success


def stands(settings: Settings, check: str = BETWEEN) -> tuple[bool, str]:
    """Return whether a check of `gated` passes, and its description."""
    found = {e.check_name: e for e in checks.current_results(PLAIN, Snapshot(settings), gated)}
    return found[check].passed, found[check].description or ""


FIVE = "between(most, max_value=5)"
FAILED = "1 failed, the first at 2023-11-14T22:17:00Z: `9`"


@pytest.mark.parametrize("sensor", ["a", "Zürich", None])
def test_a_quarantined_window_fails_its_check_after_later_runs(
    settings: Settings, sensor: str | None
) -> None:
    judged(settings, 0)
    assert stands(settings) == (True, "as expected")
    judged(settings, 1, (3, sensor), expectation=FIVE, observed="9")
    withhold(settings, (3, sensor), by=FIVE, observed="9")
    assert stands(settings) == (False, FAILED)
    judged(settings, 2, expectation=FIVE, minutes=(5, 6))
    assert stands(settings) == (False, FAILED)
    assert stands(settings, COMPLETE) == (True, "as expected")
    # Old validation results are not read, but the quarantine is.
    promoted(settings, 9999)
    assert stands(settings) == (False, FAILED)


@pytest.mark.parametrize("settled", ["promoted", "computed", "released", "discarded"])
def test_a_check_passes_once_its_failure_is_resolved(settings: Settings, settled: str) -> None:
    """This holds even if the failing run is the newest to validate that window."""
    judged(settings, 1, (3, "a"), expectation=FIVE, observed="9")
    withhold(settings, (3, "a"), by=FIVE, observed="9")
    assert stands(settings) == (False, FAILED)
    match settled:
        case "promoted":
            promoted(settings, 2)
            publish(settings, 2, "passed", (3, "a"))
            withhold(settings)
        case "computed":
            judged(settings, 2, expectation=FIVE)
            publish(settings, 2, "passed", (3, "a"))
            withhold(settings)
        case "released":
            publish(settings, 1, "released", (3, "a"))
            withhold(settings)
        case _:
            withhold(settings, (3, "a"), by=FIVE, status="discarded")
    assert stands(settings) == (True, "as expected")


def test_a_warning_remains_until_its_window_is_recomputed(settings: Settings) -> None:
    warned = "not_null(sensor)"
    judged(settings, 1, (3, None), expectation=warned, observed="null")
    publish(settings, 1, "warned", (3, None))
    judged(settings, 2, expectation=warned, minutes=(5, 6))
    assert stands(settings, NOT_NULL) == (
        False,
        "1 failed, the first at 2023-11-14T22:17:00Z: `null`",
    )
    promoted(settings, 3)
    publish(settings, 3, "passed", (3, None))
    assert stands(settings, NOT_NULL) == (True, "as expected")


def test_a_fault_of_tidemark_is_reported_with_its_remedy(settings: Settings) -> None:
    judged(settings, 4, (3, "a"))
    withhold(settings, (3, "a"), observed="0 events, 3 in the log")
    found = {e.check_name: e for e in checks.current_results(PLAIN, Snapshot(settings), gated)}
    failed = found[COMPLETE]
    assert failed.description is not None
    assert failed.description.startswith(
        "This is a fault of Tidemark, not of the data: 1 failed, the first at 2023-11-14T22:17:00Z"
    )
    assert "`tidemark backfill gated` recomputes them from the event log" in failed.description
    assert str(failed.metadata["remedy"].value).startswith("`tidemark backfill gated`")
    # Neither a passed check nor a fault of the data mentions Tidemark.
    withhold(settings, (3, "a"), by=FIVE)
    for check in checks.current_results(PLAIN, Snapshot(settings), gated):
        assert "Tidemark" not in (check.description or "")
        assert "remedy" not in check.metadata


def test_a_check_description_states_whether_tidemark_is_at_fault() -> None:
    told = {spec.name: spec.description or "" for spec in checks.specs(PLAIN, gated)}
    assert "a failure is a fault of Tidemark, not of the data" in told[COMPLETE]
    assert "fault of Tidemark" not in told[BETWEEN]


def test_check_names_are_valid_in_dagster() -> None:
    declared = [BETWEEN, NOT_NULL, COMPLETE]
    assert list(checks.check_names(gated).values()) == [*declared, FITS]
    # A mean can't overflow.
    means = replace(gated, aggregates={"most": agg.max("value"), "average": agg.mean("price")})
    assert list(checks.check_names(means).values()) == declared


def test_a_window_that_overflows_fails_a_check_until_it_is_decided(settings: Settings) -> None:
    judged(settings, 1, (3, "a"), expectation="values_fit()", observed=SEEN)
    withhold(settings, (3, "a"), by="values_fit()", observed=SEEN)
    assert stands(settings, FITS) == (False, FAILED.replace("9", SEEN))
    assert stands(settings) == (True, "as expected")
    withhold(settings)
    publish(settings, 1, "released", (3, "a"))
    assert stands(settings, FITS) == (True, "as expected")


def test_an_overflow_is_a_failed_check_and_a_metric(engine: Settings, spark: SparkSession) -> None:
    """This holds even if the asset has no expectations."""
    own = {"database": f"overflowing_{uuid4().hex[:12]}", "domains": ("overflowing",)}
    settings = engine.model_copy(update=own)
    resource = OnTestSession(settings, spark)
    large = [Event(T0, "a", 6), Event(T0 + 1, "a", 6)]
    ingest(resource.warehouse, READINGS, [[*large, Event(T0, "b", 1)]])
    job = build_definitions(["overflowing"], {"tidemark": resource})
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey("sums")], instance=instance, partition_key="2023-11-14"
        )
    assert result.success
    told = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert (told[FITS].passed, told[FITS].severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert told[FITS].description == FAILED.replace("22:17", "22:14").replace("9", SEEN)
    [recorded] = check_results(resource.warehouse, "sums")
    assert (recorded.expectation, recorded.success) == ("values_fit()", False)
    assert [f["observed"] for f in recorded.failures] == [SEEN]
    found = scraped(Monitor(settings))
    assert value(found, "tidemark_asset_quarantined_rows", asset="sums", status="quarantined") == 1
    assert value(found, "tidemark_asset_quarantined_rows_total", asset="sums") == 1
