"""Test nightly maintenance: one job compacts all tables and reports the result."""

from importlib import import_module
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pyarrow as pa

from helpers.dagster.shown import shown
from helpers.data.support import READINGS
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_assets.jobs.maintenance import NAME, maintenance

ROWS = pa.table({"seq": [1]})


class Home:
    """A stand-in for the resource, without an engine."""

    def __init__(self, place: Path) -> None:
        self.warehouse = Warehouse(cast(Any, None), str(place), registered=False)


def test_maintenance_compacts_files_and_reports_the_result(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    home = Home(tmp_path / "tables")
    home.warehouse.ensure_table(READINGS.lookup_table("some"), ROWS)
    for _ in range(3):
        home.warehouse.append_rows(ROWS, "some")
    found = dg.Definitions.merge(maintenance(), dg.Definitions(resources={"tidemark": home}))
    done = found.resolve_job_def(NAME).execute_in_process(instance=instance)
    assert done.success
    (output,) = done.filter_events(lambda e: e.is_successful_output)
    said = output.step_output_data.metadata
    assert shown(said["tables"]) == (
        "| table | files before | after | files removed | bytes freed | kept longer |\n"
        "| some | 3 | 1 | 0 | 0 |  |\n"
        "| _scratch | 0 | 0 | 0 | 0 |  |"
    )


def load_module(domain: str) -> dg.Definitions:
    """Return the definitions that Dagster loads for a domain."""
    lazy: Any = import_module(f"{domain}.definitions").definitions
    return lazy.load_fn()


def test_maintenance_is_scheduled_once_for_all_domains() -> None:
    found = [load_module(name) for name in Settings().domains]
    own = [[s for s in each.schedules or () if s.name == NAME] for each in found]
    assert [len(schedules) for schedules in own] == [1, 0]
    schedule = own[0][0]
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 4 * * *", "UTC")
