"""Build Dagster assets from definitions that know nothing of Dagster.

A windowed transform is one asset, its published windows. One step computes any range of partitions
in a single run, with the side tables (`side_tables`). A roll-up is downstream of its base. Each run
of the roll-up brings it up to date with the base. The asset of a source is in `source_assets`.

The properties of a definition become metadata of the assets (`describe`), and the results of a run
become metadata of their materializations (`run_metadata`). The platform computes both: this package
contains none of the platform's rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext
from pydantic import Field

from tidemark.base.errors import DataError
from tidemark.base.instants import format_instant, parse_instant
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import RollUp, base_transform
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.run import runner as run
from tidemark.store.event_log.log import Log
from tidemark_assets.base.names import Names
from tidemark_assets.base.spans import spans
from tidemark_assets.base.steps import failing_with_message
from tidemark_assets.checks import checks
from tidemark_assets.checks.page_checks import as_result
from tidemark_assets.metadata import describe, run_metadata, side_tables
from tidemark_assets.metadata.describe import Metadata
from tidemark_assets.metadata.provenance import inputs, provenance_tags
from tidemark_assets.parameter import WINDOWS
from tidemark_assets.reports.run_events import log_run
from tidemark_assets.tables.options import AssetOptions
from tidemark_streaming.home.orchestrator import ENGINE_POOL

KINDS = {"spark", "deltalake"}

CARRY_ON = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
"""The automation condition of assets that are derived from windows: run if any partition of the
windows has changed, even if other partitions have never been computed.
"""

_StepEvent = dg.MaterializeResult[Any] | dg.AssetCheckResult


class LateEvents(Enum):
    """The choice of a backfill: leave out the events that were too late for their window, or not.

    The values are those of the option `--late-events` of `tidemark backfill`.
    """

    exclude = "exclude"
    include = "include"


class BackfillConfig(dg.Config):
    """How to compute the windows of the selected partitions."""

    late_events: LateEvents = Field(
        default=LateEvents.exclude,
        description="exclude counts the same events as a stream; include also counts the events "
        "that were too late for their window.",
    )


def windows_asset(
    definition: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    options: AssetOptions,
    names: Names,
) -> dg.AssetsDefinition:
    """Return the asset of a definition's published windows, for any range of partitions."""
    if isinstance(definition, RollUp):
        return _rollup_asset(definition, partitions, options, names)
    return _transform_asset(base_transform(definition), partitions, options, names)


def _transform_asset(
    transform: WindowedTransform,
    partitions: dg.TimeWindowPartitionsDefinition,
    options: AssetOptions,
    names: Names,
) -> dg.AssetsDefinition:
    """Return the asset of a transform's published windows: one run computes any range of them."""
    source = transform.source
    expected = checks.specs(names, transform)
    published = _windows_of(names, transform, options)

    @_step(names, transform, published, expected, partitions)
    def compute(
        context: AssetExecutionContext,
        config: BackfillConfig,
    ) -> Iterator[_StepEvent]:
        tidemark = names.tidemark(context)
        keys = names.of_key(context.asset_key)
        with failing_with_message():
            warehouse = tidemark.warehouse
            time_window = context.partition_time_window
            start = parse_instant(time_window.start)
            end = parse_instant(time_window.end)
            oldest, newest = _check_arrived(Log(warehouse, source), start, end)
            facts = run.backfill(
                warehouse,
                transform,
                start,
                end,
                late_events=config.late_events.value,
                reported=True,
            )
            if facts.window_from is None:
                # The first backfill of session windows computes all of them, and not only the
                # requested range.
                start = min(start, oldest)
                end = max(end, newest + 1)
            recomputed = spans(partitions, start, end - 1)
            begins = {span.key: span.start for span in recomputed}
            by_partition = run_metadata.partition_metadata(
                warehouse, transform, facts, begins, recomputed[-1].end, keys
            )
            # The history is added once, to the newest partition, like the picture of the windows.
            snapshot = tidemark.snapshot()
            by_partition[recomputed[-1].key] |= checks.draw_history(snapshot, transform, facts)
            evaluations = [*checks.current_results(keys, snapshot, transform)]
        _log_metadata(context, keys, transform, by_partition, facts.run)
        # A new data version for each run marks downstream assets as stale. Dagster's default
        # version would depend on the log's version, which stays the same.
        yield dg.MaterializeResult(
            asset_key=keys.key(transform.published_table), data_version=dg.DataVersion(facts.run)
        )
        yield from map(as_result, evaluations)

    return compute


def _step(
    names: Names,
    transform: Definition,
    published: dg.AssetSpec,
    expected: Sequence[dg.AssetCheckSpec],
    partitions: dg.TimeWindowPartitionsDefinition,
) -> Callable[[Callable[..., Iterator[_StepEvent]]], dg.AssetsDefinition]:
    """Return a decorator that makes a generator function the Dagster asset of published windows.

    Dagster calls the function once for a range of partitions. The function yields the result of the
    asset and of its checks. The side tables are not outputs of the step. The asset is its only
    output, and can therefore be selected alone in jobs, on the command line and in backfills.

    Args:
        transform: the definition, whose name is the name of the step.
        published: the asset, from `_windows_of`.
        expected: the checks of the asset.
    """
    return dg.multi_asset(
        name=names.own(transform.name),
        specs=[published],
        check_specs=expected,
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )


def _windows_of(
    names: Names,
    transform: Definition,
    options: AssetOptions,
    automation: dg.AutomationCondition[dg.AssetKey] | None = None,
) -> dg.AssetSpec:
    """Return the asset of the windows that a transform publishes.

    Args:
        automation: the condition to use if the options have none.
    """
    spec = dg.AssetSpec(
        names.key(transform.published_table),
        deps=[*map(names.key, inputs(transform))],
        description=transform.description,
        metadata={
            **describe.windows(transform, names),
            **side_tables.side_table_metadata(side_tables.transform_side_tables(transform)),
        },
        group_name=options.group_name,
        owners=options.owners,
        tags=tags_of(transform.source, options),
        kinds=KINDS,
        code_version=compute_fingerprint(transform),
        automation_condition=options.automation_condition or automation,
        freshness_policy=options.freshness_policy,
    )
    return spec.with_io_manager_key(names.own(WINDOWS))


def _log_metadata(
    context: AssetExecutionContext,
    names: Names,
    transform: Definition,
    by_partition: Mapping[str, Metadata],
    run: str,
) -> None:
    """Add metadata to the requested partitions. Log a materialization of each other partition."""
    run_partitions = set(context.partition_keys)
    table_key = names.key(transform.published_table)
    definition = compute_fingerprint(transform)
    tags = provenance_tags(context, names, transform, definition, run)
    for key, metadata in by_partition.items():
        if key in run_partitions:
            context.add_asset_metadata(metadata, asset_key=table_key, partition_key=key)
        else:
            context.log_event(
                dg.AssetMaterialization(table_key, partition=key, metadata=metadata, tags=tags)
            )


def tags_of(source: Source, options: AssetOptions) -> dict[str, str]:
    """Return the tags of a source's assets."""
    return {"tidemark/source": source.name, **options.tags}


def _rollup_asset(
    transform: RollUp,
    partitions: dg.TimeWindowPartitionsDefinition,
    options: AssetOptions,
    names: Names,
) -> dg.AssetsDefinition:
    """Return the asset of a roll-up's published windows.

    A run for any range processes all new runs of the base. It reports the requested partitions, and
    other partitions that it closed or changed.
    """
    name = transform.name
    base = transform.base
    expected = checks.specs(names, transform)
    withheld_rows = side_tables.row_count(transform.quarantine_table)
    published = _windows_of(
        names,
        transform,
        options,
        # The condition applies to any partition, not to the newest alone.
        CARRY_ON.without(dg.AutomationCondition.in_latest_time_window()),
    )

    @_step(names, transform, published, expected, partitions)
    def follow(context: AssetExecutionContext) -> Iterator[_StepEvent]:
        tidemark = names.tidemark(context)
        keys = names.of_key(context.asset_key)
        time_window = context.partition_time_window
        start = parse_instant(time_window.start)
        end = parse_instant(time_window.end)
        begins = {span.key: span.start for span in spans(partitions, start, end - 1)}
        with failing_with_message():
            facts = run.incremental(tidemark.warehouse, transform, reported=True)
            by_partition = run_metadata.rollup_metadata(
                tidemark.warehouse, transform, facts, begins, end, keys
            )
        if facts is not None:
            within = context.op_execution_context
            log_run(within, keys, tidemark, transform, partitions, facts, begins)
        if not any(
            run_facts[run_metadata.ROWS] or run_facts.get(withheld_rows)
            for run_facts in by_partition.values()
        ):
            raise dg.Failure(
                f"No window of '{name}' from {format_instant(start)} to {format_instant(end)} can "
                "be published yet: each "
                f"is still open, or lacks windows of '{base.name}'. Materialize '{base.name}' for "
                "that range first.",
                allow_retries=False,
            )
        table_key = keys.key(transform.published_table)
        for key, metadata in by_partition.items():
            context.add_asset_metadata(metadata, asset_key=table_key, partition_key=key)
        version = None if facts is None else dg.DataVersion(facts.run)
        yield dg.MaterializeResult(asset_key=table_key, data_version=version)
        yield from map(as_result, checks.current_results(keys, tidemark.snapshot(), transform))

    return follow


def _check_arrived(log: Log, start: int, end: int) -> tuple[int, int]:
    """Refuse a range of event time that lies before or after all events.

    A range between events, such as a day without events, has no windows, which is a valid result.

    Returns:
        The oldest and the newest event time of all arrivals.
    """
    arrivals = log.read_timeline() if log.warehouse.has_table(log.source.timeline_table) else []
    times = [
        (a.min_event_time, a.max_event_time)
        for a in arrivals
        if a.min_event_time is not None and a.max_event_time is not None
    ]
    oldest = min((t[0] for t in times), default=0)
    newest = max((t[1] for t in times), default=0)
    if times and oldest < end and newest >= start:
        return oldest, newest
    span = (
        f"there are events from {format_instant(oldest)} to {format_instant(newest)}"
        if times
        else "there are none"
    )
    raise DataError(
        f"No event of '{log.source.name}' from {format_instant(start)} to {format_instant(end)} "
        f"has arrived ({span}): "
        "ingest more data, or choose other partitions."
    )
