"""Test that arrivals ingested outside Dagster are reported to Dagster."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from helpers.dagster.staleness import causes
from helpers.dagster.steps import MINUTES
from helpers.dagster.ticks import of_part
from helpers.data.support import PER_MINUTE
from helpers.data.tables import arrive, beat
from tidemark.base.settings import Settings
from tidemark_assets.checks.source_checks import NO_DEAD_LETTERS, NO_FUTURE_EVENTS
from tidemark_assets.sensors.ingests import ingests_reporter


def told(instance: dg.DagsterInstance, table: str) -> list[dict[str, Any]]:
    """Return the metadata of a table's materializations in the order of the reports."""
    found = instance.fetch_materializations(dg.AssetKey(table), limit=100, ascending=True)
    events = [record.asset_materialization for record in found.records]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def test_new_arrivals_are_reported_once(instance: dg.DagsterInstance, settings: Settings) -> None:
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, settings)
    assert ticks.skipped() == "Dagster knows all arrivals of 'readings'."
    arrive(settings, "readings", 0, 3)
    assert ticks.skipped() == "Reported 4 arrivals of 'readings'."
    assert ticks.skipped() == "Dagster knows all arrivals of 'readings'."
    arrive(settings, "readings", 4, 5, newest=1_000_000)
    assert ticks.skipped() == "Reported 2 arrivals of 'readings'."
    beat(settings, "readings", 6, watermark=1_000_000)
    assert ticks.skipped() == "Only heartbeats are new in 'readings'."
    first, second = told(instance, "readings_log")
    assert (first["arrival range"], first["dagster/row_count"]) == ("0 to 3", 4)
    assert (second["arrival range"], second["dagster/row_count"]) == ("4 to 5", 6)
    assert (second["arrivals"], second["watermark now"]) == (2, 1.0)
    assert (first["rows in readings_timeline"], second["rows in readings_timeline"]) == (4, 6)


def test_only_a_recreated_log_makes_partitions_stale(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, settings)

    @dg.asset
    def readings_log() -> None: ...

    @dg.asset(deps=[readings_log], partitions_def=MINUTES)
    def per_minute() -> None: ...

    def stale() -> list[str]:
        both = dg.Definitions(assets=[readings_log, per_minute])
        return causes(instance, both, "per_minute", MINUTES.get_first_partition_key() or "")

    arrive(settings, "readings", 0, 3)
    ticks.skipped()
    first = MINUTES.get_first_partition_key()
    assert dg.materialize([per_minute], instance=instance, partition_key=first).success
    assert stale() == []
    arrive(settings, "readings", 4, 5)
    assert ticks.skipped() == "Reported 2 arrivals of 'readings'."
    assert stale() == []
    shutil.rmtree(Path(settings.warehouse) / settings.database / "readings_timeline")
    arrive(settings, "readings", 0, 0)
    ticks.skipped()
    assert stale() == ["has a new dependency materialization"]


def test_dead_letters_fail_the_check_until_an_arrival_has_none(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, settings)
    key = dg.AssetCheckKey(dg.AssetKey("readings_log"), NO_DEAD_LETTERS)

    def check() -> tuple[bool, str | None]:
        [found] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert found.event is not None
        told = found.event.asset_check_evaluation
        assert told is not None
        assert told.severity is dg.AssetCheckSeverity.WARN
        return told.passed, told.description

    arrive(settings, "readings", 0, 0)
    arrive(settings, "readings", 1, 2, dead_letters=3)
    ticks.skipped()
    passed, description = check()
    assert not passed
    assert description is not None
    assert description.startswith(
        "6 rows could not be decoded, the first in arrival 1: `tidemark dead-"
    )
    assert told(instance, "readings_log")[-1]["rows in readings_dead_letters"] == 6
    arrive(settings, "readings", 3, 3)
    ticks.skipped()
    assert check() == (True, "All rows could be decoded.")


def test_the_log_of_another_database_is_reported(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    arrive(settings, "readings", 0, 3)
    of_part(ingests_reporter(PER_MINUTE.source), instance, settings).skipped()
    other = settings.model_copy(update={"database": "other"})
    arrive(other, "readings", 0, 1)
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, other)
    assert ticks.skipped() == "Reported 2 arrivals of 'readings'."
    assert ticks.skipped() == "Dagster knows all arrivals of 'readings'."


@pytest.mark.parametrize("count", [4, 6])
def test_a_recreated_log_is_reported_from_its_first_arrival(
    instance: dg.DagsterInstance, settings: Settings, count: int
) -> None:
    """The new log has as many arrivals as the old one, or more."""
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, settings)
    timeline = Path(settings.warehouse) / settings.database / "readings_timeline"
    arrive(settings, "readings", 0, 3)
    ticks.skipped()
    shutil.rmtree(timeline)
    arrive(settings, "readings", 0, count - 1)
    assert ticks.skipped() == f"Reported {count} arrivals of 'readings'."
    assert ticks.skipped() == "Dagster knows all arrivals of 'readings'."


def test_a_watermark_ahead_of_the_clock_fails_the_check(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = of_part(ingests_reporter(PER_MINUTE.source), instance, settings)
    key = dg.AssetCheckKey(dg.AssetKey("readings_log"), NO_FUTURE_EVENTS)

    def check() -> tuple[bool, str | None]:
        [found] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert found.event is not None
        told = found.event.asset_check_evaluation
        assert told is not None
        return told.passed, told.description

    arrive(settings, "readings", 0, 1)
    ticks.skipped()
    assert check() == (True, "The watermark is not ahead of the clock.")
    arrive(settings, "readings", 2, 2, newest=10 * 3600 * 1_000_000)
    ticks.skipped()
    passed, description = check()
    assert not passed
    assert description is not None
    assert "10.0 hours ahead of the processing clock: arrival 2 moved it there" in description
