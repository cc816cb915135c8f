"""Expectations in Dagster: checks by partition, a quarantine that is an asset, two jobs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from pyspark.sql import SparkSession

from gated.readings import ARRIVALS, DAY
from gated.transforms import gated
from shown import shown
from staleness import causes
from steps import OnTestSession
from support import MINUTE, READINGS, T0, ingest
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.define.fingerprint import fingerprint
from tidemark.quality import results
from tidemark.quality.results import CheckResult, Failure
from tidemark_assets import checks
from tidemark_assets.definitions import build_definitions
from tidemark_assets.names import PLAIN
from tidemark_assets.resources import TidemarkResource

TABLES = ["gated", "gated_late", "gated_late_loss", "gated_quarantine"]
BETWEEN, NOT_NULL, COMPLETE = "between_most_most_5", "not_null_sensor", "complete"


class Platform:
    """The domain `gated`, an instance of Dagster and a warehouse."""

    def __init__(self, resource: TidemarkResource, instance: dg.DagsterInstance) -> None:
        self.warehouse, self.instance = resource.warehouse, instance
        self.definitions = build_definitions(["gated"], {"tidemark": resource})

    def run(self, job: str, decision: dict[str, object]) -> dg.ExecuteInProcessResult:
        op = job.removesuffix("_quarantined")
        return self.definitions.resolve_job_def(job).execute_in_process(
            run_config={"ops": {op: {"config": decision}}},
            instance=self.instance,
            raise_on_error=False,
        )


@pytest.fixture(scope="module")
def platform(engine: Settings, spark: SparkSession) -> Iterator[Platform]:
    """Three days of readings, computed by one single-run backfill."""
    settings = engine.model_copy(update={"database": f"checks_{uuid4().hex[:12]}"})
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(OnTestSession(settings, spark), instance)
        ingest(platform.warehouse, READINGS, ARRIVALS)
        result = platform.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey(table) for table in TABLES],
            instance=instance,
            tags={
                "dagster/asset_partition_range_start": "2023-11-14",
                "dagster/asset_partition_range_end": "2023-11-16",
            },
        )
        assert result.success
        yield platform


def evaluations(platform: Platform, check: str) -> dict[str | None, dg.AssetCheckEvaluation]:
    """The newest evaluation of a check by partition."""
    key = dg.AssetCheckKey(dg.AssetKey("gated"), check)
    found: dict[str | None, dg.AssetCheckEvaluation] = {}
    records = platform.instance.event_log_storage.get_asset_check_execution_history(key, limit=99)
    for record in records:
        assert record.status.value in ("SUCCEEDED", "FAILED"), "a check stays planned"
        assert record.event is not None
        event = record.event.dagster_event
        assert event is not None
        evaluation = event.asset_check_evaluation_data
        found.setdefault(evaluation.partition, evaluation)
    return found


def test_each_expectation_is_a_check_by_partition(platform: Platform) -> None:
    days = ["2023-11-14", "2023-11-15", "2023-11-16"]
    between, not_null, complete = (
        evaluations(platform, check) for check in (BETWEEN, NOT_NULL, COMPLETE)
    )
    assert {day: e.passed for day, e in between.items()} == dict(
        zip(days, [True, False, True], strict=True)
    )
    assert {day: e.passed for day, e in not_null.items()} == dict(
        zip(days, [True, True, False], strict=True)
    )
    assert {day: e.passed for day, e in complete.items()} == dict.fromkeys(days, True)
    failed = between["2023-11-15"]
    assert failed.severity is dg.AssetCheckSeverity.ERROR
    assert not_null["2023-11-16"].severity is dg.AssetCheckSeverity.WARN
    assert failed.description == "1 failed, the first at 2023-11-15T22:14:00Z: `9`"
    listed = shown(failed.metadata["failures"])
    assert '| 2023-11-15T22:14:00Z | {"sensor":"a"} | 9 |' in listed


def test_the_quarantine_is_an_asset_with_its_rows_by_partition(platform: Platform) -> None:
    found = platform.instance.fetch_materializations(
        dg.AssetRecordsFilter(dg.AssetKey("gated_quarantine"), asset_partitions=["2023-11-15"]),
        limit=1,
    )
    materialized = found.records[0].asset_materialization
    assert materialized is not None
    assert materialized.metadata["dagster/partition_row_count"].value == 1
    node = platform.definitions.resolve_asset_graph().get(dg.AssetKey("gated_quarantine"))
    assert node.parent_keys == {dg.AssetKey("gated")}


def test_the_history_is_drawn_with_the_quarantine(platform: Platform) -> None:
    found = platform.instance.fetch_observations(dg.AssetKey("gated_quarantine"), limit=1)
    observed = found.records[0].asset_observation
    assert observed is not None
    assert str(observed.metadata["history"].value).startswith(
        "![history](data:image/svg+xml;base64,"
    )


def test_a_release_is_new_data_of_its_partition(platform: Platform) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="not in enum type judged_assets"):
        platform.run("release_quarantined", {"asset": "other"})
    result = platform.run("release_quarantined", {"asset": "gated", "keys": {"sensor": "a"}})
    assert result.success
    released = [e for e in result.all_events if e.is_step_materialization]
    assert [e.partition for e in released] == ["2023-11-15"]
    assert causes(platform.instance, platform.definitions, "gated", "2023-11-15") == []
    tags = released[0].step_materialization_data.materialization.tags or {}
    assert tags[CODE_VERSION_TAG] == fingerprint(gated)
    row = platform.warehouse.read("gated").where("most = 9").collect()
    assert [r["quality"] for r in row] == ["released"]
    nothing = platform.run("discard_quarantined", {"asset": "gated"})
    assert not nothing.success


def result(seq: int, day: int, *failures: str) -> CheckResult:
    """A result on the windows of one day; a failure for each of these sensors."""
    start = as_datetime(T0 + day * DAY)
    return CheckResult(
        asset="gated",
        life="",
        expectation="between(most, most=5)",
        level="error",
        success=not failures,
        window_from=start,
        window_to=as_datetime(T0 + day * DAY + MINUTE),
        rows_judged=3,
        rows_failed=len(failures),
        observed="",
        expected="at most 5",
        failures=[
            {"window_start": start, "keys": f'{{"sensor":"{s}"}}', "observed": "9"}
            for s in failures
        ],
        run="r",
        mode="incremental",
        through_arrival=seq,
        seq=seq,
        at=start,
    )


def test_runs_of_a_stream_are_told_together_and_what_is_withheld_fails() -> None:
    told = [result(3, 0), result(4, 1, "a"), result(5, 1), result(6, 2)]
    withheld = {
        "window_start": as_datetime(T0 + 2 * DAY + MINUTE),
        "sensor": "b",
        "status": "held",
        "failed": [{"expectation": "between(most, most=5)", "observed": "7"}],
    }
    (both,) = checks.streamed(PLAIN, gated, told, [withheld])
    assert (both.passed, both.partition) == (False, None)
    assert both.description == "2 failed, the first at 2023-11-15T22:14:00Z: `9`"
    (held,) = checks.streamed(PLAIN, gated, told[2:], [withheld])
    assert held.description == "1 failed, the first at 2023-11-16T22:15:00Z: `7`"
    (left,) = checks.streamed(PLAIN, gated, told[2:], [])
    assert left.passed


def test_a_withheld_window_that_fails_again_is_told_once() -> None:
    withheld = {
        "window_start": as_datetime(T0 + DAY),
        "sensor": "Zürich",
        "status": "held",
        "failed": [{"expectation": "between(most, most=5)", "observed": "9"}],
    }
    (told,) = checks.streamed(PLAIN, gated, [result(4, 1, "Zürich")], [withheld])
    assert told.description == "1 failed, the first at 2023-11-15T22:14:00Z: `9`"


def test_a_fault_of_tidemark_is_told_as_that_with_what_to_do() -> None:
    lost = replace(result(4, 1, "a"), expectation="complete()")
    (failed,) = checks.streamed(PLAIN, gated, [lost], [])
    assert failed.description is not None
    assert failed.description.startswith(
        "This is a fault of Tidemark, not of the data: 1 failed, the first at 2023-11-15T22:14:00Z"
    )
    assert "`tidemark backfill gated` computes them anew from the log" in failed.description
    assert str(failed.metadata["what to do"].value).startswith("`tidemark backfill gated`")
    # Not where it holds, and not where the data are at fault.
    for told in (replace(lost, success=True, failures=[]), result(4, 1, "a")):
        (other,) = checks.streamed(PLAIN, gated, [told], [])
        assert "Tidemark" not in (other.description or "")
        assert "what to do" not in other.metadata


def test_the_page_of_a_check_says_whose_fault_a_failure_is() -> None:
    days = dg.DailyPartitionsDefinition(start_date="2023-11-14")
    told = {spec.name: spec.description or "" for spec in checks.specs(PLAIN, gated, days)}
    assert "where it fails, that is a fault of Tidemark, not of the data" in told[COMPLETE]
    assert "fault of Tidemark" not in told[BETWEEN]


def test_a_stream_that_judges_a_day_again_is_told_again(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for told in ([result(3, 0)], [result(4, 0, "a")], [result(5, 0)]):
            for evaluation in checks.streamed(PLAIN, gated, told, []):
                instance.report_runless_asset_event(evaluation)
        key = dg.AssetCheckKey(dg.AssetKey("gated"), BETWEEN)
        records = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert [r.status.value for r in records] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_checks_have_names_that_dagster_takes() -> None:
    assert list(checks.check_names(gated).values()) == [BETWEEN, NOT_NULL, COMPLETE]


@pytest.mark.parametrize(("windows", "known"), [(30, 2), (700, 1)])
def test_days_beyond_what_a_result_lists_are_not_as_expected(windows: int, known: int) -> None:
    """Of more failures than are listed each window has one; of more windows than that, the later
    days are not known."""
    failures = [
        Failure(T0 + day * DAY + window * MINUTE, f'{{"sensor":"{n}"}}', "9")
        for day in range(2)
        for window in range(windows)
        for n in range(40)
    ]
    listed = results.listed(failures)
    assert len(listed) == results.MOST
    found = replace(
        result(1, 0),
        success=False,
        rows_failed=len(failures),
        failures=[
            {"window_start": as_datetime(f.window_start), "keys": f.keys, "observed": f.observed}
            for f in listed
        ],
    )
    begins = {f"day {n}": T0 + n * DAY for n in range(3)}
    told = list(checks.evaluations(PLAIN, gated, [found], begins))
    assert [e.passed for e in told[:2]] == [False, False]
    # All windows of two days are listed, so the third is as expected; or it is not known.
    assert told[2].passed is (known == 2)
    assert str(told[0].description).partition(" failed")[0].endswith("or more")
    if known == 1:
        assert told[2].description == "not known: 56,000 failed in all, more than are listed"
