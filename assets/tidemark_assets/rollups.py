"""Roll-ups in Dagster: below their base, and up to date with it after any of their runs."""

from collections.abc import Iterator

import dagster as dg
from dagster import AssetExecutionContext

from tidemark.base.instants import instant, iso
from tidemark.define.rollup import RollUp
from tidemark.run import runner as run
from tidemark_assets import checks, describe, report
from tidemark_assets.automation import CARRY_ON
from tidemark_assets.build import Presentation, StepEvent, step, table_of, withheld_rows
from tidemark_assets.names import PLAIN, Names
from tidemark_assets.run_events import log_run
from tidemark_assets.spans import spans
from tidemark_assets.steps import one_sentence
from tidemark_streaming.judged import results_since, withheld


def rollup_assets(
    transform: RollUp, group: str, show: Presentation, names: Names = PLAIN
) -> dg.AssetsDefinition:
    """The published windows of a roll-up: a run for any range takes in all that its base has.

    It tells of the partitions that were asked for, and of others that closed or changed with it.
    """
    name, base, partitions = transform.name, transform.base, show.partitions_of(transform.name)
    expected = checks.specs(names, transform, partitions)
    specs = [
        table_of(
            names,
            transform,
            group,
            show,
            transform.table,
            transform.description,
            describe.windows(transform, names),
            # Of any partition, not of the newest alone.
            CARRY_ON.without(dg.AutomationCondition.in_latest_time_window()),
        )
    ]
    if expected:
        specs.append(withheld_rows(names, transform, group, show))

    @step(names, transform, specs, expected, partitions)
    def follow(context: AssetExecutionContext) -> Iterator[StepEvent]:
        tidemark = names.tidemark(context)
        asked, glance = context.partition_time_window, tidemark.glance()
        start, end = instant(asked.start), instant(asked.end)
        begins = {span.key: span.start for span in spans(partitions, start, end - 1)}
        with one_sentence():
            facts = run.incremental(tidemark.warehouse, transform, reported=True)
            found = report.rolled_up(tidemark.warehouse, transform, facts, begins, end)
        if facts is not None:
            within = context.op_execution_context
            log_run(within, names, tidemark, transform, partitions, facts, begins)
        if not any(told[report.ROWS] for table in found.values() for told in table.values()):
            raise dg.Failure(
                f"No window of '{name}' from {iso(start)} to {iso(end)} has closed with all that "
                f"it holds: materialize '{base.name}' there first, for whole windows of '{name}'.",
                allow_retries=False,
            )
        for table, by_partition in found.items():
            for key, metadata in by_partition.items():
                context.add_asset_metadata(metadata, asset_key=names.key(table), partition_key=key)
            version = None if facts is None else dg.DataVersion(facts.run)
            yield dg.MaterializeResult(asset_key=names.key(table), data_version=version)
        if expected:
            told, held = results_since(glance, name), withheld(glance, transform)
            stands = list(checks.standing(transform, told, held, start, end))
            yield from checks.evaluations(names, transform, stands, begins)
        for check in expected:
            yield dg.Output(None, check.get_python_identifier())

    return follow
