"""What streams and increments did appears in Dagster, by closed partitions."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import dagster as dg
import pytest

from helpers.dagster.staleness import causes
from helpers.dagster.ticks import Ticks
from helpers.dagster.ticks import of as ticks_of
from helpers.data.support import PER_MINUTE
from helpers.data.tables import arrive, publish, ran
from tidemark.base.instants import duration, instant
from tidemark.base.settings import Settings
from tidemark.define.windows import Tumbling
from tidemark_assets.base.names import PLAIN, with_prefix
from tidemark_assets.checks.freshness_check import FRESH
from tidemark_assets.definitions import build_definitions
from tidemark_assets.reports import self_reported_runs
from tidemark_assets.sensors import partition_sensor
from tidemark_assets.sensors.partition_sensor import windows
from tidemark_assets.tables.windows import CARRY_ON

HOURLY = replace(PER_MINUTE, name="hourly", window=Tumbling("1 hour"))
DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
HOUR = duration("1 hour")
DAY = [instant(f"2013-01-0{day}") for day in range(1, 6)]


def reports(instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    return ticks_of(
        windows("some", {"hourly": HOURLY}, lambda _: DAYS, 24 * HOUR), instance, settings
    )


def materialized(instance: dg.DagsterInstance, asset: str = "hourly") -> list[str]:
    """The partitions that Dagster knows as materialized, in the order of the reports."""
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
    """Report partitions as the step of a run does."""
    for day in days:
        said = dg.AssetMaterialization("hourly", partition=day, metadata={"run": f"{run}"})
        instance.report_runless_asset_event(said)


def test_what_is_made_of_a_partition_is_stale_once_late_events_change_it(
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


def test_a_partition_is_reported_when_it_closes_and_when_late_events_change_it(
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


def test_many_runs_since_the_last_look_are_one_report_a_partition(
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


def test_what_is_too_much_for_one_tick_follows_in_the_next(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_sensor, "MAX_PARTITIONS_PER_TICK", 2)
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3] + HOUR, *DAY[:4])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    # Meanwhile a late event changes what was reported already.
    run(settings, 1, DAY[4], DAY[0] + HOUR)
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."
    days = [f"2013-01-0{day}" for day in (1, 2, 3, 1, 4)]
    assert materialized(instance) == days


def test_an_asset_that_was_made_anew_is_reported_from_its_beginning(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    for commit_number in range(3):
        run(settings, commit_number, DAY[commit_number + 1], DAY[commit_number])
    assert ticks.skipped() == "hourly: 3 partitions reported"
    for table in ("hourly", "hourly_state"):
        shutil.rmtree(f"{settings.warehouse}/{settings.database}/{table}")
    # What is on record of the life that has ended is nobody's any more.
    assert ticks.skipped() == "No new runs except those that report themselves."
    run(settings, 0, DAY[2], DAY[0], DAY[1])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."
    assert materialized(instance)[3:] == ["2013-01-01", "2013-01-02"]


def test_another_database_is_reported_whole(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """Though all of its runs ended before those of the first one that are known."""
    ticks = reports(instance, settings)
    run(settings, 5000, DAY[1], DAY[0])
    assert ticks.skipped() == "hourly: 1 partitions reported"
    ticks.settings = settings.model_copy(update={"database": "other"})
    # Where there is nothing yet, what is known of the first one stays known.
    ticks.skipped()
    run(ticks.settings, 0, DAY[2], DAY[0], DAY[1])
    assert ticks.skipped() == "hourly: 2 partitions reported"
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_a_report_says_how_the_partition_stands(
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


def test_backfills_of_dagster_report_themselves(
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


def test_what_an_increment_of_dagster_closed_is_not_told_again(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """An increment reports itself; a stream before, between and after it does not."""
    ticks = reports(instance, settings)
    run(settings, 0, DAY[1] - HOUR, DAY[0])
    # It closes the first day, in which the stream's window is, and the second.
    run(settings, 1, DAY[2], DAY[1], reported=True)
    tell(instance, 1, "2013-01-01", "2013-01-02")
    assert ticks.skipped() == "hourly: 0 partitions reported"
    run(settings, 2, DAY[3], DAY[2], reported=True)
    tell(instance, 2, "2013-01-03")
    assert ticks.skipped() == "No new runs except those that report themselves."
    # It closes the fourth, and changes the second and the third, which have closed by now.
    run(settings, 3, DAY[4], DAY[3], DAY[1] + HOUR, DAY[2] + HOUR)
    # One more changes the third again.
    run(settings, 4, DAY[4], DAY[2] + 2 * HOUR, reported=True)
    tell(instance, 4, "2013-01-03")
    assert ticks.skipped() == "hourly: 3 partitions reported"
    told = [f"2013-01-0{day}" for day in (1, 2, 3, 3, 2, 3, 4)]
    assert materialized(instance) == told
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_a_partition_that_an_increment_closed_and_did_not_tell_of_is_reported(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[1] - HOUR, DAY[0], DAY[0] + HOUR)
    ticks.skipped()
    # It was killed; what it closed has nothing new of it.
    run(settings, 1, DAY[1], DAY[1], reported=True)
    assert ticks.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance) == ["2013-01-01"]
    assert ticks.skipped() == "No new runs except those that report themselves."


def test_what_a_step_that_was_killed_did_not_tell_is_reported(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3], *DAY[:3])
    ticks.skipped()
    run(settings, 1, DAY[3], *DAY[:3], mode="backfill", reported=True)
    tell(instance, 1, "2013-01-01")
    monkeypatch.setattr(partition_sensor, "MAX_PARTITIONS_PER_TICK", 1)
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
    assert said["made by"] == partition_sensor.UNREPORTED_RUN


def test_two_prefixes_over_one_home_each_have_all_of_it(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    plain, trials = (
        ticks_of(
            windows("some", {"hourly": HOURLY}, lambda _: DAYS, 24 * HOUR, names),
            instance,
            settings,
        )
        for names in (PLAIN, with_prefix("trials"))
    )
    run(settings, 0, DAY[1], DAY[0])
    assert plain.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance, "trials/hourly") == []
    assert trials.skipped() == "hourly: 1 partitions reported"
    # A step of the plain ones tells of its own keys; the others are told after a while.
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
    assert event.asset_materialization.metadata["made by"].value == partition_sensor.UNREPORTED_RUN


def test_many_steps_that_were_killed_are_looked_at_by_and_by(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = reports(instance, settings)
    run(settings, 0, DAY[3], *DAY[:3])
    ticks.skipped()
    monkeypatch.setattr(partition_sensor, "MAX_SEARCHED_RUNS", 1)
    slack = partition_sensor.LEDGER_DISORDER_MICROS // 1_000_000
    for commit_number, day in enumerate(DAY[:3], 1):
        # Far apart, so that the first is in view no longer when the last one is done.
        run(settings, commit_number * 2 * slack, DAY[3], day, mode="backfill", reported=True)
    said = [ticks.skipped() for _ in range(4)]
    none = "No new runs except those that report themselves."
    assert said == ["hourly: 1 partitions reported"] * 3 + [none]
    assert materialized(instance)[3:] == ["2013-01-01", "2013-01-02", "2013-01-03"]


def test_a_step_is_given_time_to_tell(instance: dg.DagsterInstance, settings: Settings) -> None:
    ticks, now = reports(instance, settings), datetime.now(UTC)
    run(settings, 0, DAY[1], DAY[0])
    ticks.skipped()
    run(settings, 1, DAY[1], DAY[0], mode="backfill", reported=True, ended_at=now)
    assert ticks.skipped() == "No new runs except those that report themselves."
    # Also where a run comes after it meanwhile, which is reported.
    run(settings, 2, DAY[2], DAY[1], ended_at=now + timedelta(seconds=1))
    assert ticks.skipped() == "hourly: 1 partitions reported"
    with patch.object(self_reported_runs, "REPORT_TIMEOUT_MICROS", 0):
        assert ticks.skipped() == "hourly: 1 partitions reported"
    assert materialized(instance) == ["2013-01-01", "2013-01-02", "2013-01-01"]


def test_a_backfill_of_the_command_line_is_reported_day_by_day(
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
    run(settings, 0, instant("2015-01-01"), instant("2012-12-31"), instant("2014-06-01"))
    assert reports(instance, settings).skipped() == "hourly: 0 partitions reported"


def test_freshness_is_told_when_it_changes(
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


# Dagster's own evaluation uses what Dagster calls a beta.
@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_what_is_made_of_windows_is_carried_on_though_most_partitions_are_missing(
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
def test_a_roll_up_is_carried_on_by_any_partition_of_its_base(
    instance: dg.DagsterInstance,
) -> None:
    definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": None})
    asked = dg.AssetSelection.assets("departures_hourly", "departures_daily")
    cursor = None
    for changed, requested in (
        ([], set[str]()),
        (["departures_hourly"], {"2013-01-02"}),
        # What ran with its base need not run again.
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
