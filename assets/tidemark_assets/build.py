"""Dagster assets, built from definitions that know nothing of Dagster.

A windowed transform is one asset, its published windows, which one step computes for any range of
partitions in a single run, with its side tables (`side_tables`); the asset of a source is in
`inflow`. What a definition says becomes metadata of the assets (`describe`), and what a run found
becomes metadata of their materializations (`report`). How either is computed is the platform's
business: no rule of it belongs here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.run import runner as run
from tidemark.store.log import Log
from tidemark_assets import checks, describe, report, side_tables
from tidemark_assets.describe import Metadata
from tidemark_assets.names import PLAIN, Names
from tidemark_assets.parameter import WINDOWS
from tidemark_assets.provenance import inputs, made_of
from tidemark_assets.spans import spans
from tidemark_assets.steps import BackfillConfig, check_arrived, one_sentence
from tidemark_streaming.orchestrator import ENGINE_POOL

__all__ = ["Presentation"]

KINDS = {"spark", "deltalake"}

StepEvent = dg.MaterializeResult[Any] | dg.AssetCheckResult


@dataclass(frozen=True)
class Presentation:
    """How a domain appears in Dagster: all that it has to say about Dagster.

    Example:
        Presentation(
            partitions=dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1),
            owners=["team:retail"],
        )

    Args:
        partitions: the days, or hours, by which windows are materialized and backfilled: a window
            belongs to the partition in which it starts.
        by_asset: other partitions, for assets by name: months, or days of another time zone.
        owners: e-mail addresses, or teams as `team:<name>`.
        tags: tags of all the domain's assets.
        fresh_within: how far the windows' watermark may stay behind the newest event.
        arrives_within: for live feeds, by source: how long, by the wall clock, its log may go
            without an arrival. Then Dagster calls it stale, by a freshness policy.
        automation: when assets are materialized by themselves, by name of the asset.
    """

    partitions: dg.TimeWindowPartitionsDefinition
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    fresh_within: str = "1 day"
    arrives_within: Mapping[str, str] = field(default_factory=dict[str, str])
    by_asset: Mapping[str, dg.TimeWindowPartitionsDefinition] = field(
        default_factory=dict[str, dg.TimeWindowPartitionsDefinition]
    )
    automation: Mapping[str, dg.AutomationCondition[dg.AssetKey]] = field(
        default_factory=dict[str, dg.AutomationCondition[dg.AssetKey]]
    )

    def partitions_of(self, asset: str) -> dg.TimeWindowPartitionsDefinition:
        """The partitions by which an asset is materialized."""
        return self.by_asset.get(asset, self.partitions)


def transform_assets(
    transform: WindowedTransform, group: str, show: Presentation, names: Names = PLAIN
) -> dg.AssetsDefinition:
    """Return the asset of a transform's published windows: one run computes any range of them."""
    source, partitions = transform.source, show.partitions_of(transform.name)
    expected = checks.specs(names, transform)
    published = windows_of(names, transform, group, show)

    @step(names, transform, published, expected, partitions)
    def compute(
        context: AssetExecutionContext,
        config: BackfillConfig,
    ) -> Iterator[StepEvent]:
        tidemark = names.tidemark(context)
        with one_sentence():
            warehouse, asked = tidemark.warehouse, context.partition_time_window
            start, end = instant(asked.start), instant(asked.end)
            oldest, newest = check_arrived(Log(warehouse, source), start, end)
            answer = config.answer.value
            facts = run.backfill(warehouse, transform, start, end, answer=answer, reported=True)
            if facts.window_from is None:
                # The first sessions of a definition: all were computed, whatever was asked.
                start, end = min(start, oldest), max(end, newest + 1)
            done = spans(partitions, start, end - 1)
            begins = {span.key: span.start for span in done}
            found = report.computed(warehouse, transform, facts, begins, done[-1].end)
            # As the pictures of windows: once, with the newest partition.
            found[done[-1].key] |= checks.history(warehouse, transform, facts)
            stands = [*checks.standing(names, tidemark.glance(), transform)]
        _tell(context, names, transform, found, facts.run)
        # By its version what is made of it in turn is stale, as Dagster's own goes by the log.
        yield dg.MaterializeResult(
            asset_key=names.key(transform.table), data_version=dg.DataVersion(facts.run)
        )
        yield from map(checks.as_result, stands)

    return compute


def step(
    names: Names,
    transform: Definition,
    published: dg.AssetSpec,
    expected: Sequence[dg.AssetCheckSpec],
    partitions: dg.TimeWindowPartitionsDefinition,
) -> Callable[[Callable[..., Iterator[StepEvent]]], dg.AssetsDefinition]:
    """Makes of a function the step of a transform, which runs once for any range of partitions.

    Its side tables are not outputs: with a single asset in the step that asset can be selected
    alone, in jobs, on the command line and in backfills.
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


def windows_of(
    names: Names,
    transform: Definition,
    group: str,
    show: Presentation,
    automation: dg.AutomationCondition[dg.AssetKey] | None = None,
) -> dg.AssetSpec:
    """Return the asset of the windows that a transform publishes.

    Args:
        automation: the default, if the domain's presentation does not have one.
    """
    spec = dg.AssetSpec(
        names.key(transform.table),
        deps=[*map(names.key, inputs(transform))],
        description=transform.description,
        metadata={
            **describe.windows(transform, names),
            **side_tables.listed(side_tables.of_transform(transform)),
        },
        group_name=names.own(group),
        owners=show.owners,
        tags=tags_of(transform.source, show),
        kinds=KINDS,
        code_version=fingerprint(transform),
        automation_condition=show.automation.get(transform.name) or automation,
    )
    return spec.with_io_manager_key(names.own(WINDOWS))


def _tell(
    context: AssetExecutionContext,
    names: Names,
    transform: Definition,
    by_partition: Mapping[str, Metadata],
    run: str,
) -> None:
    """Give the partitions their metadata, those too that nobody asked for."""
    asked = set(context.partition_keys)
    own, made = names.key(transform.table), fingerprint(transform)
    tags = made_of(context, names, transform, made, run)
    for key, metadata in by_partition.items():
        if key in asked:
            context.add_asset_metadata(metadata, asset_key=own, partition_key=key)
        else:
            context.log_event(
                dg.AssetMaterialization(own, partition=key, metadata=metadata, tags=tags)
            )


def tags_of(source: Source, show: Presentation) -> dict[str, str]:
    """The tags of what belongs to a source."""
    return {"tidemark/source": source.name, **show.tags}
