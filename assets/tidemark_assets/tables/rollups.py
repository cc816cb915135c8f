"""Roll-ups in Dagster: downstream of their base, and up to date with it after any of its runs."""

from collections.abc import Iterator

import dagster as dg
from dagster import AssetExecutionContext

from tidemark.base.instants import instant, iso
from tidemark.define.rollup import RollUp
from tidemark.run import runner as run
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.spans import spans
from tidemark_assets.base.steps import failing_with_message
from tidemark_assets.checks import checks
from tidemark_assets.checks.page_checks import as_result
from tidemark_assets.metadata import run_metadata, side_tables
from tidemark_assets.reports.run_events import log_run
from tidemark_assets.tables.windows import CARRY_ON, DagsterOptions, StepEvent, step, windows_of


def rollup_assets(
    transform: RollUp, group: str, show: DagsterOptions, names: Names = PLAIN
) -> dg.AssetsDefinition:
    """Return the asset of a roll-up's published windows.

    A run for any range processes all runs of its base. It reports the requested partitions, and
    others that closed or changed with it.
    """
    name, base, partitions = transform.name, transform.base, show.partitions_of(transform.name)
    expected = checks.specs(names, transform)
    withheld_rows = side_tables.row_count(transform.quarantine_table)
    published = windows_of(
        names,
        transform,
        group,
        show,
        # The condition applies to any partition, not to the newest alone.
        CARRY_ON.without(dg.AutomationCondition.in_latest_time_window()),
    )

    @step(names, transform, published, expected, partitions)
    def follow(context: AssetExecutionContext) -> Iterator[StepEvent]:
        tidemark = names.tidemark(context)
        asked = context.partition_time_window
        start, end = instant(asked.start), instant(asked.end)
        begins = {span.key: span.start for span in spans(partitions, start, end - 1)}
        with failing_with_message():
            facts = run.incremental(tidemark.warehouse, transform, reported=True)
            found = run_metadata.rollup_metadata(tidemark.warehouse, transform, facts, begins, end)
        if facts is not None:
            within = context.op_execution_context
            log_run(within, names, tidemark, transform, partitions, facts, begins)
        if not any(
            run_facts[run_metadata.ROWS] or run_facts.get(withheld_rows)
            for run_facts in found.values()
        ):
            raise dg.Failure(
                f"No window of '{name}' from {iso(start)} to {iso(end)} is complete and closed. "
                f"To get whole windows of '{name}', materialize '{base.name}' for that range "
                "first.",
                allow_retries=False,
            )
        own = names.key(transform.table)
        for key, metadata in found.items():
            context.add_asset_metadata(metadata, asset_key=own, partition_key=key)
        version = None if facts is None else dg.DataVersion(facts.run)
        yield dg.MaterializeResult(asset_key=own, data_version=version)
        yield from map(as_result, checks.current_results(names, tidemark.snapshot(), transform))

    return follow
