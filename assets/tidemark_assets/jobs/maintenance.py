"""Maintain the tables each night: compact files, trim transaction logs, and remove unused files.

One job does this for all tables of the database, of all domains.
"""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from tidemark.store.upkeep.maintenance import (
    DAY,
    MaintenanceResult,
    combine_errors,
    maintain_tables,
)
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.jobs.step_job import Step, step_job

NAME = "maintenance"


class MaintenanceConfig(dg.Config):
    """The scope of the maintenance."""

    tables: list[str] = Field(default=[], description="The tables to maintain; all by default.")
    retention_days: float = Field(
        default=7,
        ge=0,
        description="The number of days for which files that a table no longer uses are kept.",
    )


def maintenance(names: Names = PLAIN) -> dg.Definitions:
    """Create the job and its schedule."""

    job = step_job(
        names,
        NAME,
        "maintain_tables",
        "Compacts small files of all tables, checkpoints and trims their transaction logs, and "
        "vacuums unreferenced files. Streams continue to run.",
        MaintenanceConfig,
        _maintain,
    )
    schedule = dg.ScheduleDefinition(
        name=names.own(NAME),
        job_name=job.name,
        cron_schedule="30 4 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Maintains all tables each night at 04:30 UTC.",
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])


def _maintain(step: Step[MaintenanceConfig]) -> None:
    retention = int(step.config.retention_days * DAY)
    results = list[MaintenanceResult]()
    for table in maintain_tables(step.tidemark.warehouse, step.config.tables, retention=retention):
        step.context.log.info(f"{table.table}: {table.before} files, now {table.after}.")
        results.append(table)
    freed = sum(table.freed for table in results)
    step.context.add_output_metadata({"tables": _to_markdown(results), "bytes freed": freed})
    if (trouble := combine_errors(results)) is not None:
        raise trouble


def _to_markdown(results: Sequence[MaintenanceResult]) -> dg.TableMetadataValue:
    """Return the results as a table."""
    columns = ("table", "files before", "after", "files removed", "bytes freed", "kept longer")
    rows = [
        (
            result.table,
            result.before,
            f"{result.after:,}{' (busy)' if result.busy else ''}",
            result.removed,
            result.freed,
            result.spared,
        )
        for result in results
    ]
    return as_table(columns, rows)
