"""Maintain the tables each night: compact files, trim logs, and remove unused files.

One job does this for all tables of the database, of all domains.
"""

from collections.abc import Sequence

import dagster as dg
from dagster import OpExecutionContext
from pydantic import Field

from tidemark.store.upkeep.maintenance import DAY, MaintenanceResult, combine_errors, maintain
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import failing_with_message
from tidemark_streaming.home.orchestrator import ENGINE_POOL

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

    @dg.op(name=names.own("maintain_tables"), pool=ENGINE_POOL, required_resource_keys=names.needs)
    def keep_small(
        context: OpExecutionContext,
        config: MaintenanceConfig,
    ) -> None:
        tidemark = names.tidemark(context)
        retention, done = int(config.retention_days * DAY), list[MaintenanceResult]()
        with failing_with_message():
            for table in maintain(tidemark.warehouse, config.tables, retention=retention):
                context.log.info(f"{table.table}: {table.before} files, now {table.after}.")
                done.append(table)
            context.add_output_metadata(
                {
                    "tables": to_markdown(done),
                    "bytes freed": sum(table.freed for table in done),
                }
            )
            if (trouble := combine_errors(done)) is not None:
                raise trouble

    @dg.job(
        name=names.own(NAME),
        description=(
            "Compacts small files of all tables, checkpoints and trims their transaction logs, "
            "and vacuums unreferenced files. Streams continue to run."
        ),
    )
    def job() -> None:
        keep_small()

    schedule = dg.ScheduleDefinition(
        name=names.own(NAME),
        job_name=job.name,
        cron_schedule="30 4 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Maintains all tables each night at 04:30 UTC.",
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])


def to_markdown(done: Sequence[MaintenanceResult]) -> dg.TableMetadataValue:
    """Return the results as a table."""
    columns = ("table", "files before", "after", "files removed", "bytes freed", "kept longer")
    rows = [
        (
            each.table,
            each.before,
            f"{each.after:,}{' (busy)' if each.busy else ''}",
            each.removed,
            each.freed,
            each.spared,
        )
        for each in done
    ]
    return as_table(columns, rows)
