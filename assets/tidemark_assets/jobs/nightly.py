"""The operation `nightly`: recompute the last days each night with their too-late events.

Before it replaces anything, the operation verifies the published windows against a bounded
computation from the log (parity). The parity check shows if the published result is correct. The
recomputation shows how many events the allowed lateness excluded.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import base_transform
from tidemark.run import runner as run
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import ParityReport, check_parity
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.base.spans import PartitionsOf, Span, find_closed_partitions
from tidemark_assets.base.steps import of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.comparisons import PARITY, parity_result
from tidemark_assets.checks.page_checks import page_check
from tidemark_assets.jobs.operations import TAG, Operation, chosen
from tidemark_assets.jobs.step_job import Step, for_each_asset
from tidemark_assets.metadata import run_metadata
from tidemark_assets.metadata.provenance import provenance_tags
from tidemark_streaming.home.orchestrator import ENGINE_POOL

_NAME = "nightly"
_DAYS = 3


def nightly_operation(
    domain: str, transforms: Mapping[str, Definition], partitions: PartitionsOf
) -> Operation[Any]:
    """Return the operation that verifies and recomputes the last closed days."""

    class NightlyConfig(of_assets(domain, transforms)):
        """The assets and partitions to recompute."""

        days: int = Field(
            default=_DAYS,
            ge=1,
            description="Number of closed partitions to recompute, counted back from the newest.",
        )

    def recompute(step: Step[NightlyConfig], transform: Definition) -> tuple[object, ...] | None:
        days = _closed_days(
            step.tidemark.warehouse, transform, partitions(transform.name), step.config.days
        )
        if not days:
            step.context.log.info(f"{transform.name}: no partition has closed yet.")
            return None
        return _row(days, *_verify_and_recompute(step, transform, days))

    def describe(
        results: Mapping[str, tuple[object, ...] | None],
    ) -> dict[str, dg.MetadataValue[Any]]:
        return {"nightly": as_table(_COLUMNS, [row for row in results.values() if row is not None])}

    return Operation(
        _NAME,
        "Verifies the last closed days against a bounded computation, republishes them with the "
        "events that were too late, and reports the differences.",
        NightlyConfig,
        for_each_asset(transforms, recompute, describe),
    )


def nightly_schedule(
    domain: str, job: dg.JobDefinition, step: str, names: Names
) -> dg.ScheduleDefinition:
    """Return the schedule that launches the operation each night.

    Args:
        job: the job of the domain's operations.
        step: the name of the job's step, with its prefix.
    """
    return dg.ScheduleDefinition(
        name=names.own(f"{domain}_nightly"),
        job_name=job.name,
        run_config=chosen(step, _NAME, {}),
        tags={TAG: _NAME},
        cron_schedule="30 3 * * *",
        execution_timezone="UTC",
        description="Recomputes the last closed days each night at 03:30 UTC.",
    )


def parity_check(
    transform: Definition, partitions: dg.TimeWindowPartitionsDefinition, names: Names = PLAIN
) -> dg.AssetChecksDefinition:
    """Return the check `parity`, which the operation `nightly` and the asset's page run."""

    key = names.key(transform.published_table)

    def evaluate(tidemark: TidemarkResource) -> dg.AssetCheckEvaluation:
        days = _closed_days(tidemark.warehouse, transform, partitions, _DAYS)
        if not days:
            said = "No partition has closed yet."
            return dg.AssetCheckEvaluation(key, PARITY, passed=True, metadata={}, description=said)
        verified = check_parity(tidemark.warehouse, transform, days[0].start, days[-1].end)
        return parity_result(names, verified, _span(days), "the check itself")

    return page_check(
        key,
        names,
        PARITY,
        f"The published windows of the last {_DAYS} closed partitions are equal to a bounded "
        "computation of the event log.",
        evaluate,
        ENGINE_POOL,
    )


def _closed_days(
    warehouse: Warehouse,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    count: int,
) -> list[Span]:
    watermark = State(warehouse, transform).read_last_commit().after.at.watermark
    times = [a.max_event_time for a in Log(warehouse, transform.source).read_timeline()]
    newest = max((t for t in times if t is not None), default=None)
    if watermark is None or newest is None:
        return []
    return find_closed_partitions(partitions, transform.window, watermark, newest, count)


def _verify_and_recompute(
    step: Step[Any], transform: Definition, days: list[Span]
) -> tuple[ParityReport, RunFacts]:
    names = step.names
    warehouse = step.tidemark.warehouse
    start = days[0].start
    end = days[-1].end
    verified = check_parity(warehouse, transform, start, end)
    step.log(parity_result(names, verified, _span(days), "the operation `nightly`"))
    facts = run.backfill(warehouse, transform, start, end, late_events="include", reported=True)
    begins = {day.key: day.start for day in days}
    by_partition = run_metadata.partition_metadata(
        warehouse, base_transform(transform), facts, begins, end, names
    )
    tags = provenance_tags(
        step.context, names, transform, compute_fingerprint(transform), facts.run
    )
    table_key = names.key(transform.published_table)
    for key, metadata in by_partition.items():
        step.log(dg.AssetMaterialization(table_key, partition=key, metadata=metadata, tags=tags))
    # The sensor `<domain>_reports` skips this run, because this step reports the run.
    step.log(*checks.current_results(names, step.tidemark.snapshot(), transform))
    return verified, facts


def _span(days: list[Span]) -> str:
    return f"{days[0].key} to {days[-1].key}"


_COLUMNS = ("asset", "days", "windows", "as published", "too late", "watermark", "seconds")


def _row(days: list[Span], verified: ParityReport, facts: RunFacts) -> tuple[object, ...]:
    same = "equal" if verified.is_equal else format_count(verified.total, "difference")
    return (
        verified.asset,
        _span(days),
        verified.windows,
        same,
        format_count(verified.lost, "event"),
        format_instant(facts.watermark) or "-infinity",
        f"{facts.seconds:.1f}",
    )
