"""Recompute the last days each night with their too-late events.

Before it replaces anything, the job verifies the published windows against a bounded computation
from the log (parity). The parity check shows if the published result is correct. The
recomputation shows how many events the allowed lateness excluded.
"""

from collections.abc import Mapping

import dagster as dg
from dagster import OpExecutionContext
from pydantic import Field

from tidemark.base.counts import format_count
from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import fingerprint
from tidemark.define.rollup import base_transform
from tidemark.run import runner as run
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import ParityReport, parity
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.spans import PartitionsOf, Span, find_closed_partitions
from tidemark_assets.base.steps import Failures, failing_with_message, of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.comparisons import PARITY, parity_result
from tidemark_assets.metadata import run_metadata
from tidemark_assets.metadata.provenance import provenance_tags
from tidemark_streaming.home.orchestrator import ENGINE_POOL

DAYS = 3


def nightly(
    domain: str,
    transforms: Mapping[str, Definition],
    partitions: PartitionsOf,
    names: Names = PLAIN,
) -> dg.Definitions:
    """Create the nightly job of a domain and its schedule."""

    class NightlyConfig(of_assets(domain, transforms)):
        """The assets and partitions to recompute."""

        days: int = Field(
            default=DAYS,
            ge=1,
            description="Number of closed partitions to recompute, counted back from the newest.",
        )

    @dg.op(
        name=names.own(f"{domain}_recomputations"),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def recompute(
        context: OpExecutionContext,
        config: NightlyConfig,
    ) -> None:
        tidemark = names.tidemark(context)
        rows, failures = list[tuple[object, ...]](), Failures(context)
        for asset in config.assets:
            transform = transforms[asset]
            with failures.collect(asset):
                days = _closed_days(tidemark.warehouse, transform, partitions(asset), config.days)
                if not days:
                    context.log.info(f"{asset}: no partition has closed yet.")
                    continue
                verified, facts = _verify_and_recompute(
                    context, names, tidemark.warehouse, transform, days
                )
                rows.append(_row(days, verified, facts))
        context.add_output_metadata({"nightly": as_table(_COLUMNS, rows)})
        failures.raise_all()

    @dg.job(
        name=names.own(f"{domain}_nightly"),
        description=(
            "Verifies the last closed days against a bounded computation, republishes them with "
            "the events that were too late, and reports the differences."
        ),
    )
    def job() -> None:
        recompute()

    schedule = dg.ScheduleDefinition(
        name=names.own(f"{domain}_nightly"),
        job_name=job.name,
        cron_schedule="30 3 * * *",
        execution_timezone="UTC",
        description="Recomputes the last closed days each night at 03:30 UTC.",
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])


def parity_check(
    transform: Definition, partitions: dg.TimeWindowPartitionsDefinition, names: Names = PLAIN
) -> dg.AssetChecksDefinition:
    """Return the check that the nightly job reports; the asset's page can run it at any time."""

    @dg.asset_check(
        asset=names.key(transform.table),
        required_resource_keys=names.needs,
        name=PARITY,
        description=(
            f"The published windows of the last {DAYS} closed partitions are equal to a bounded "
            "computation of the event log."
        ),
        pool=ENGINE_POOL,
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        tidemark = names.tidemark(context)
        with failing_with_message():
            days = _closed_days(tidemark.warehouse, transform, partitions, DAYS)
            if not days:
                return dg.AssetCheckResult(passed=True, description="No partition has closed yet.")
            start, end = days[0].start, days[-1].end
            verified = parity(tidemark.warehouse, transform, start, end)
            found = parity_result(names, verified, _span(days), "the check itself")
        return dg.AssetCheckResult(
            passed=found.passed, description=found.description, metadata=found.metadata
        )

    return check


def _closed_days(
    warehouse: Warehouse,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    count: int,
) -> list[Span]:
    watermark = State(warehouse, transform).last().after.at.watermark
    times = [a.max_event_time for a in Log(warehouse, transform.source).timeline()]
    newest = max((t for t in times if t is not None), default=None)
    if watermark is None or newest is None:
        return []
    return find_closed_partitions(partitions, transform.window, watermark, newest, count)


def _verify_and_recompute(
    context: OpExecutionContext,
    names: Names,
    warehouse: Warehouse,
    transform: Definition,
    days: list[Span],
) -> tuple[ParityReport, RunFacts]:
    start, end = days[0].start, days[-1].end
    verified = parity(warehouse, transform, start, end)
    # The method accepts check results too, although its signature omits them.
    context.log_event(parity_result(names, verified, _span(days), "the nightly job"))  # pyright: ignore[reportArgumentType]
    facts = run.backfill(warehouse, transform, start, end, late_events="include", reported=True)
    begins = {day.key: day.start for day in days}
    found = run_metadata.partition_metadata(
        warehouse, base_transform(transform), facts, begins, end
    )
    tags = provenance_tags(context, names, transform, fingerprint(transform), facts.run)
    own = names.key(transform.table)
    for key, metadata in found.items():
        made = dg.AssetMaterialization(own, partition=key, metadata=metadata, tags=tags)
        context.log_event(made)
    # This job reports its own run: the sensor of windows skips it.
    for evaluation in checks.current_results(names, names.tidemark(context).snapshot(), transform):
        context.log_event(evaluation)  # pyright: ignore[reportArgumentType]
    return verified, facts


def _span(days: list[Span]) -> str:
    return f"{days[0].key} to {days[-1].key}"


_COLUMNS = ("asset", "days", "windows", "as published", "too late", "watermark", "seconds")


def _row(days: list[Span], verified: ParityReport, facts: RunFacts) -> tuple[object, ...]:
    same = "equal" if verified.equal else format_count(verified.total, "difference")
    return (
        verified.asset,
        _span(days),
        verified.windows,
        same,
        format_count(verified.lost, "event"),
        iso(facts.watermark) or "-infinity",
        f"{facts.seconds:.1f}",
    )
