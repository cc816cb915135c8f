"""Test that runs of streams and increments are reported to Dagster by closed partition."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest

from helpers.dagster.staleness import causes
from helpers.dagster.ticks import Ticks, of_part
from helpers.data.support import PER_MINUTE
from helpers.data.tables import arrive, publish, ran
from tidemark.base.instants import parse_duration, parse_instant
from tidemark.base.settings import Settings
from tidemark.define.windows import Tumbling
from tidemark_assets.base.names import PLAIN, with_prefix
from tidemark_assets.checks.freshness_check import FRESH
from tidemark_assets.definitions import build_definitions
from tidemark_assets.sensors import partitions
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_assets.tables.windows import CARRY_ON

HOURLY = replace(PER_MINUTE, name="hourly", window=Tumbling("1 hour"))
DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
HOUR = parse_duration("1 hour")
DAY = [parse_instant(f"2013-01-0{day}") for day in range(1, 6)]


def reports(instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    return of_part(
        partitions_reporter({"hourly": HOURLY}, lambda _: DAYS, 24 * HOUR), instance, settings
    )


def materialized(instance: dg.DagsterInstance, asset: str = "hourly") -> list[str]:
    """Return the materialized partitions in the order of the reports."""
    key = dg.AssetKey.from_user_string(asset)
    found = instance.fetch_materializations(key, limit=100, ascending=True).records
    return [r.partition_key or "" for r in found]


def run(
    settings: Settings,
    commit_number: int,
    watermark: int,
    *starts: int,
    mode: str = "incremental",
    **others: object,
) -> None:
    publish(settings, "hourly", commit_number, starts, HOUR)
    ran(settings, "hourly", commit_number, commit_number, watermark, mode, **others)


def tell(instance: dg.DagsterInstance, run: int, *days: str) -> None:
    """Report partitions as a run's step does."""
    for day in days:
        said = dg.AssetMaterialization("hourly", partition=day, metadata={"run": f"{run}"})
        instance.report_runless_asset_event(said)


def test_a_late_event_makes_downstream_partitions_stale(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks, day = reports(instance, settings), "2013-01-01"

    @dg.asset(partitions_def=DAYS)
    def hourly() -> None: ...

    @dg.asset(partitions_def=DAYS, deps=[hourly])
    def below() -> None: ...

    both = dg.Definitions(assets=[hourly, below])
    run(settings, 0, DAY[1], DAY[0])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    below_alone = dg.materialize(
        [hourly, below], instance=instance, selection=["below"], partition_key=day
    )
    assert below_alone.success
    assert causes(instance, both, "below", day) == []
    run(settings, 1, DAY[2], DAY[1])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert causes(instance, both, "below", day) == []
    run(settings, 2, DAY[2], DAY[0])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert causes(instance, both, "below", day) == ["has a new dependency materialization"]


def test_a_partition_is_reported_when_it_closes_and_changes(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    assert ticks.skipped() == "No new runs except those that report themselves."
    run(settings, 0, DAY[1] - 1, DAY[0], DAY[0] + 22 * HOUR)
    assert ticks.skipped() == "hourly: 0 partitions reported"
    assert materialized(instance) == []

    # The day's last window has no events: it closes with the watermark alone.
    run(settings, 1, DAY[1], DAY[1])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance) == ["2013-01-01"]

    run(settings, 2, DAY[1] + HOUR, DAY[0] + 5 * HOUR, DAY[1] + HOUR)
    ticks.skipped()
    ticks.skipped()
    assert materialized(instance) == ["2013-01-01", "2013-01-01"]


def test_a_reported_partition_has_what_catalogs_read(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """They read the address and the lineage of columns from materializations alone."""
    run(settings, 0, DAY[1], DAY[0])
    assert reports(instance, settings).skipped() == "hourly: 1 partitions reported"
    event = instance.get_latest_materialization_event(dg.AssetKey("hourly"))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    table = Path(settings.warehouse) / settings.database / "hourly"
    assert metadata["dagster/uri"].value == table.resolve().as_uri()
    lineage = metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    log = dg.AssetKey("readings_log")
    assert lineage.deps_by_column["sensor"] == [dg.TableColumnDep(log, "sensor")]
    assert metadata["dagster/partition_row_count"].value == 1
    files = [path.stat().st_size for path in table.glob("**/*.parquet")]
    assert files
    assert metadata["table bytes"].value == sum(files)


def test_many_runs_between_two_ticks_are_one_report_per_partition(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    for commit_number in range(24):
        run(
            settings,
            commit_number,
            DAY[0] + (commit_number + 1) * 3 * HOUR,
            DAY[0] + commit_number * 3 * HOUR,
        )
    assert reports(instance, settings).skipped() == "hourly: 3 partitions reported"
    assert materialized(instance) == ["2013-01-01", "2013-01-02", "2013-01-03"]


def test_partitions_beyond_the_limit_are_reported_in_the_next_tick(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITIONS_PER_TICK", 2)
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3] + HOUR, *DAY[:4])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    # A late event changes a partition that was already reported.
    run(settings, 1, DAY[4], DAY[0] + HOUR)
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."
    days = [f"2013-01-0{day}" for day in (1, 2, 3, 1, 4)]
    assert materialized(instance) == days


def test_a_recreated_asset_is_reported_from_its_first_run(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    for commit_number in range(3):
        run(settings, commit_number, DAY[commit_number + 1], DAY[commit_number])
    assert ticks.skipped() == "hourly: 3 partitions reported"
    for table in ("hourly", "hourly_state"):
        shutil.rmtree(f"{settings.warehouse}/{settings.database}/{table}")
    # Runs of the deleted tables are no longer reported.
    assert ticks.skipped() == "No new runs except those that report themselves."
    run(settings, 0, DAY[2], DAY[0], DAY[1])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."
    assert materialized(instance)[3:] == ["2013-01-01", "2013-01-02"]


def test_another_database_is_reported_from_its_first_run(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """This holds even if all its runs ended before the known runs of the first database."""
    ticks = reports(instance, settings)
    run(settings, 5000, DAY[1], DAY[0])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    ticks.settings = settings.model_copy(update={"database": "other"})
    # An empty database does not reset the cursor of the first one.
    ticks.skipped()
    run(ticks.settings, 0, DAY[2], DAY[0], DAY[1])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_a_report_contains_the_facts_of_the_partition(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    run(settings, 0, DAY[1], DAY[0], DAY[0] + HOUR)
    reports(instance, settings).skipped()
    event = instance.get_latest_materialization_event(dg.AssetKey("hourly"))
    assert event is not None
    assert event.asset_materialization is not None
    said = {k: v.value for k, v in event.asset_materialization.metadata.items()}
    assert (
        said["dagster/partition_row_count"],
        said["events in windows"],
        said["windows not final"],
    ) == (2, 4, 2)
    assert said["up to date through arrival"] == 0


def test_a_backfill_by_dagster_reports_itself(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[2], DAY[0], DAY[1])
    ticks.skipped()
    run(settings, 1, DAY[2], DAY[0], mode="backfill", reported=True)
    tell(instance, 1, "2013-01-01")
    assert ticks.skipped() == "No new runs except those that report themselves."
    run(settings, 2, DAY[3], DAY[2])
    ticks.skipped()
    assert materialized(instance) == ["2013-01-01", "2013-01-02", "2013-01-01", "2013-01-03"]


def test_partitions_closed_by_dagster_are_not_reported_again(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """An increment reports itself. A stream before, between or after increments does not."""
    ticks = reports(instance, settings)
    run(settings, 0, DAY[1] - HOUR, DAY[0])
    # The run closes the first day, which has the stream's window, and the second.
    run(settings, 1, DAY[2], DAY[1], reported=True)
    tell(instance, 1, "2013-01-01", "2013-01-02")
    assert ticks.skipped() == "hourly: 0 partitions reported"
    run(settings, 2, DAY[3], DAY[2], reported=True)
    tell(instance, 2, "2013-01-03")
    assert ticks.skipped() == "No new runs except those that report themselves."
    # The run closes the fourth day and changes the second and third, which are closed.
    run(settings, 3, DAY[4], DAY[3], DAY[1] + HOUR, DAY[2] + HOUR)
    # Another run changes the third day again.
    run(settings, 4, DAY[4], DAY[2] + 2 * HOUR, reported=True)
    tell(instance, 4, "2013-01-03")
    assert ticks.skipped() == "hourly: 3 partitions reported"
    told = [f"2013-01-0{day}" for day in (1, 2, 3, 3, 2, 3, 4)]
    assert materialized(instance) == told
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_a_partition_that_a_killed_increment_closed_is_reported(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[1] - HOUR, DAY[0], DAY[0] + HOUR)
    ticks.skipped()
    # The run was killed. The day that it closed has no new window from it.
    run(settings, 1, DAY[1], DAY[1], reported=True)
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance) == ["2013-01-01"]
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_partitions_that_a_killed_step_did_not_report_are_reported(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3], *DAY[:3])
    ticks.skipped()
    run(settings, 1, DAY[3], *DAY[:3], mode="backfill", reported=True)
    tell(instance, 1, "2013-01-01")
    monkeypatch.setattr(partitions, "MAX_PARTITIONS_PER_TICK", 1)
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."
    days = ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert materialized(instance) == [*days, *days]
    event = instance.get_latest_materialization_event(dg.AssetKey("hourly"))
    assert event is not None
    assert event.asset_materialization is not None
    said = {k: v.value for k, v in event.asset_materialization.metadata.items()}
    assert said["run"] == "1"
    assert said["made by"] == partitions.UNREPORTED_RUN


def test_two_prefixes_of_one_home_each_report_all_partitions(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    plain, trials = (
        of_part(
            partitions_reporter({"hourly": HOURLY}, lambda _: DAYS, 24 * HOUR, names),
            instance,
            settings,
            names,
        )
        for names in (PLAIN, with_prefix("trials"))
    )
    run(settings, 0, DAY[1], DAY[0])
    assert plain.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance, "trials/hourly") == []
    assert trials.skipped() == "hourly: 1 partitions reported"
    # A step reports its own keys. The sensor reports the other prefix after a timeout.
    run(settings, 1, DAY[2], DAY[1], reported=True)
    tell(instance, 1, "2013-01-02")
    assert [each.skipped() for each in (plain, trials)] == [
        "No new runs except those that report themselves.",
        "hourly: 1 partitions reported",
    ]
    both = ["2013-01-01", "2013-01-02"]
    assert materialized(instance) == materialized(instance, "trials/hourly") == both
    event = instance.get_latest_materialization_event(dg.AssetKey(["trials", "hourly"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["made by"].value == partitions.UNREPORTED_RUN


def test_many_killed_steps_are_searched_over_several_ticks(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3], *DAY[:3])
    ticks.skipped()
    monkeypatch.setattr(partitions, "MAX_SEARCHED_RUNS", 1)
    slack = partitions.LEDGER_DISORDER_MICROS // 1_000_000
    for commit_number, day in enumerate(DAY[:3], 1):
        # Far apart, so that the first run is out of range when the last one is reported.
        run(settings, commit_number * 2 * slack, DAY[3], day, mode="backfill", reported=True)
    said = [ticks.skipped() for _ in range(4)]
    none = "No new runs except those that report themselves."
    assert said == ["hourly: 1 partitions reported"] * 3 + [none]
    assert materialized(instance)[3:] == ["2013-01-01", "2013-01-02", "2013-01-03"]


def test_a_step_gets_time_to_report_its_partitions(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks, now = reports(instance, settings), datetime.now(UTC)
    run(settings, 0, DAY[1], DAY[0])
    ticks.skipped()
    run(settings, 1, DAY[1], DAY[0], mode="backfill", reported=True, ended_at=now)
    assert ticks.skipped() == "No new runs except those that report themselves."
    # This holds even if a later run is reported in the meantime.
    run(settings, 2, DAY[2], DAY[1], ended_at=now + timedelta(seconds=1))
    assert ticks.skipped() == "hourly: 1 partitions reported"
    with patch.object(partitions, "REPORT_TIMEOUT_MICROS", 0):
        assert ticks.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance) == ["2013-01-01", "2013-01-02", "2013-01-01"]


def test_a_command_line_backfill_is_reported_by_day(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    run(settings, 0, DAY[2], DAY[0], DAY[1], DAY[2], mode="backfill")
    assert reports(instance, settings).skipped() == "hourly: 2 partitions reported"
    assert materialized(instance) == ["2013-01-01", "2013-01-02"]
    event = instance.get_latest_materialization_event(dg.AssetKey("hourly"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["made by"].value == "a backfill outside Dagster"


def test_windows_outside_all_partitions_are_not_reported(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    run(
        settings,
        0,
        parse_instant("2015-01-01"),
        parse_instant("2012-12-31"),
        parse_instant("2014-06-01"),
    )
    assert reports(instance, settings).skipped() == "hourly: 0 partitions reported"


def test_freshness_is_reported_when_it_changes(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    key = dg.AssetCheckKey(dg.AssetKey("hourly"), FRESH)

    def told() -> list[bool]:
        found = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
        events = [r.event.dagster_event for r in found if r.event is not None]
        return [e.asset_check_evaluation_data.passed for e in events if e is not None][::-1]

    arrive(settings, "readings", 0, 0, newest=DAY[1] + 2 * HOUR)
    run(settings, 0, DAY[1], DAY[0])
    ticks.skipped()
    ticks.skipped()
    assert told() == [True]
    arrive(settings, "readings", 1, 1, newest=DAY[3])
    ticks.skipped()
    assert told() == [True, False]
    run(settings, 1, DAY[3], DAY[1])
    ticks.skipped()
    assert told() == [True, False, True]


# Dagster's own evaluation uses a beta feature.
@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_a_downstream_asset_runs_although_most_partitions_are_missing(
    instance: dg.DagsterInstance,
) -> None:
    @dg.asset(partitions_def=DAYS)
    def hourly() -> None: ...

    @dg.asset(deps=[hourly], automation_condition=CARRY_ON)
    def mart() -> None: ...

    definitions = dg.Definitions(assets=[hourly, mart])
    first = dg.evaluate_automation_conditions(definitions, instance)
    assert first.total_requested == 0
    instance.report_runless_asset_event(dg.AssetMaterialization("hourly", partition="2013-01-02"))
    second = dg.evaluate_automation_conditions(definitions, instance, cursor=first.cursor)
    assert second.total_requested == 1
    third = dg.evaluate_automation_conditions(definitions, instance, cursor=second.cursor)
    assert third.total_requested == 0


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_a_new_base_partition_requests_the_same_rollup_partition(
    instance: dg.DagsterInstance,
) -> None:
    definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": None})
    asked = dg.AssetSelection.assets("departures_hourly", "departures_daily")
    cursor = None
    for changed, requested in (
        ([], set[str]()),
        (["departures_hourly"], {"2013-01-02"}),
        # A roll-up that ran with its base does not run again.
        (["departures_hourly", "departures_daily"], set[str]()),
    ):
        for asset in changed:
            event = dg.AssetMaterialization(asset, partition="2013-01-02")
            instance.report_runless_asset_event(event)
        found = dg.evaluate_automation_conditions(
            definitions, instance, asset_selection=asked, cursor=cursor
        )
        assert found.get_requested_partitions(dg.AssetKey("departures_daily")) == requested
        cursor = found.cursor
