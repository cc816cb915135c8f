"""Dagster assets, built from definitions that know nothing of Dagster.

A source gives its log, its dead letters and its timeline, which one step brings up to date. A
windowed transform gives its published windows, its late events and their late loss, which one step
computes for any range of partitions in a single run. What a definition says becomes metadata of the
assets (`describe`), and what a run found becomes metadata of their materializations (`report`).
How either is computed is the platform's business: no rule of it belongs here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext, ResourceParam
from dagster._core.definitions.data_version import CODE_VERSION_TAG

from tidemark.base.instants import duration, instant
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.source import Source, reference_name
from tidemark.define.transform import WindowedTransform
from tidemark.quality import results
from tidemark.run import runner as run
from tidemark.store.log import Log
from tidemark_assets import checks, describe, report, undecoded
from tidemark_assets.describe import Metadata
from tidemark_assets.parameter import WINDOWS
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.spans import spans
from tidemark_assets.steps import BackfillConfig, IngestConfig, check_arrived, one_sentence
from tidemark_streaming.feed import Excerpt, Inlet
from tidemark_streaming.ingest import furnish, ingest, replay
from tidemark_streaming.orchestrator import ENGINE_POOL

KINDS = {"spark", "deltalake"}

StepEvent = (
    dg.MaterializeResult[Any] | dg.AssetCheckEvaluation | dg.AssetObservation | dg.Output[None]
)


@dataclass(frozen=True)
class Presentation:
    """How a domain appears in Dagster: all that it has to say about Dagster.

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


def feed_asset(source: Source, group: str, show: Presentation) -> dg.AssetSpec:
    """The outside world from which a source's events come: where lineage begins."""
    told = f"Where the events of {source.name} come from, outside Tidemark."
    return _outside(_feed(source), told, "file", source, group, show)


def reference_assets(source: Source, group: str, show: Presentation) -> list[dg.AssetSpec]:
    """The tables with which a source's events are joined: whoever writes them, not Tidemark."""
    told = f"Joined with {source.name}, as it was when each of its events came in."
    return [
        _outside(reference_name(reference), told, "deltalake", source, group, show)
        for reference in source.references
    ]


def _outside(
    key: str, description: str, kind: str, source: Source, group: str, show: Presentation
) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        description=description,
        group_name=group,
        owners=show.owners,
        tags=_tags(source, show),
        kinds={kind},
    )


def source_assets(inlet: Inlet, group: str, show: Presentation) -> dg.AssetsDefinition:
    """The log, the dead letters and the timeline of a source: materializing them ingests what is
    pending."""
    source = inlet.source

    within = show.arrives_within.get(source.name)
    live = None
    if within is not None:
        live = dg.FreshnessPolicy.time_window(timedelta(microseconds=duration(within)))

    def spec(
        table: str, description: str, metadata: Metadata, live: dg.FreshnessPolicy | None = None
    ) -> dg.AssetSpec:
        return dg.AssetSpec(
            table,
            freshness_policy=live,
            deps=[_feed(source)],
            description=description,
            metadata=metadata,
            group_name=group,
            owners=show.owners,
            tags=_tags(source, show),
            kinds=KINDS,
        )

    log = spec(
        source.log_table,
        f"Every event of {source.name}, with the facts of its arrival.",
        describe.log(source),
        live,
    )
    timeline = spec(
        source.timeline_table,
        f"One row for each arrival of {source.name}: its watermark, event times and size.",
        describe.timeline(source),
    )

    dead_letters = spec(
        source.dead_letters_table,
        f"What came of {source.name} and could not be decoded, with its bytes and the reason; "
        "`tidemark dead-letters` shows it, and brings back what was mended.",
        describe.dead_letters(),
    )

    @dg.multi_asset(
        name=f"ingest_{source.name}",
        specs=[log, dead_letters, timeline],
        check_specs=[undecoded.spec(source)],
        pool=ENGINE_POOL,
    )
    def bring(
        context: AssetExecutionContext,
        config: IngestConfig,
        tidemark: ResourceParam[TidemarkResource],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        with one_sentence():
            warehouse, landing = tidemark.warehouse, tidemark.landing(source)
            if config.play_days:
                commits = replay(
                    warehouse, inlet, landing, Excerpt(days=config.play_days), batch=None
                )
            else:
                furnish(warehouse, inlet)
                commits = ingest(warehouse, inlet.feed(landing), batch=None)
            arrivals = [arrival for commit in commits for arrival in commit.arrivals]
            context.log.info(f"{len(arrivals)} arrivals brought in.")
            found = report.ingested(warehouse, source, arrivals)
        for table, metadata in found.items():
            yield dg.MaterializeResult(asset_key=table, metadata=metadata)
        yield undecoded.judged(source, arrivals)

    return bring


def transform_assets(
    transform: WindowedTransform, group: str, show: Presentation
) -> dg.AssetsDefinition:
    """What a transform publishes, panes, late events and late loss: one run for any range."""
    name, source, partitions = transform.name, transform.source, show.partitions_of(transform.name)
    version, expected = fingerprint(transform), checks.specs(transform, partitions)

    def spec(table: str, deps: Sequence[str], description: str, metadata: Metadata) -> dg.AssetSpec:
        return table_of(transform, group, show, table, deps, description, metadata)

    published = spec(
        transform.table,
        [source.log_table, source.timeline_table, *transform.references],
        transform.description,
        describe.windows(transform),
    )
    late = spec(
        transform.late_table,
        [source.log_table],
        f"Events too late for their window of {name}, each with the window it missed and by how "
        "much, and events without an event time.",
        describe.lateness(transform),
    )
    loss = spec(
        transform.late_loss_table,
        # Not of the windows too: Dagster refuses backfills of one step's assets in a diamond.
        [transform.late_table],
        f"Windows of {name} that lack late events: the answer as streamed beside the complete one.",
        describe.lateness(transform),
    )

    specs = [published, late, loss]
    if transform.expectations:
        specs.append(withheld_rows(transform, group, show))
    if transform.accumulation is not None:
        panes = spec(
            transform.panes_table,
            [source.log_table],
            f"Every firing of every window of {name}, in its order.",
            describe.panes(transform),
        )
        specs.append(panes)

    @step(transform, specs, expected, partitions)
    def compute(
        context: AssetExecutionContext,
        config: BackfillConfig,
        tidemark: ResourceParam[TidemarkResource],
    ) -> Iterator[StepEvent]:
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
            judged = (
                results.of_commit(warehouse, name, facts.seq, facts.life)
                if transform.expectations
                else []
            )
            drawn = checks.history(warehouse, transform, facts) if judged else {}
        for table, by_partition in found.items():
            _tell(context, table, by_partition, version)
            yield dg.MaterializeResult(asset_key=table)
        yield from checks.evaluations(transform, judged, begins)
        if drawn:
            yield dg.AssetObservation(transform.quarantine_table, metadata=drawn)
        # What a check gave was logged by partition; its output only says that it is done.
        for check in expected:
            yield dg.Output(None, check.get_python_identifier())

    return compute


def step(
    transform: Definition,
    specs: Sequence[dg.AssetSpec],
    expected: Sequence[dg.AssetCheckSpec],
    partitions: dg.TimeWindowPartitionsDefinition,
) -> Callable[[Callable[..., Iterator[StepEvent]]], dg.AssetsDefinition]:
    """Makes of a function the step of a transform, which runs once for any range of partitions."""
    return dg.multi_asset(
        name=transform.name,
        specs=specs,
        check_specs=expected,
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=ENGINE_POOL,
    )


def table_of(
    transform: Definition,
    group: str,
    show: Presentation,
    table: str,
    deps: Sequence[str],
    description: str,
    metadata: Metadata,
    automation: dg.AutomationCondition[dg.AssetKey] | None = None,
) -> dg.AssetSpec:
    """A table of a transform, made of others.

    Args:
        automation: where the domain's presentation says none.
    """
    own = show.automation.get(transform.name) if table == transform.table else None
    spec = dg.AssetSpec(
        table,
        deps=deps,
        description=description,
        metadata=metadata,
        group_name=group,
        owners=show.owners,
        tags=_tags(transform.source, show),
        kinds=KINDS,
        code_version=fingerprint(transform),
        automation_condition=own or automation,
    )
    return spec.with_io_manager_key(WINDOWS) if table == transform.table else spec


def withheld_rows(transform: Definition, group: str, show: Presentation) -> dg.AssetSpec:
    """The quarantine of a transform."""
    return table_of(
        transform,
        group,
        show,
        transform.quarantine_table,
        [transform.table],
        f"Windows of {transform.name} that failed what is expected of them, instead of being "
        "published; the jobs release_quarantined and discard_quarantined decide about them.",
        describe.quarantine(transform),
    )


def _tell(
    context: AssetExecutionContext, table: str, by_partition: Mapping[str, Metadata], version: str
) -> None:
    """Give a table's partitions their metadata, those too that nobody asked for."""
    asked = set(context.partition_keys)
    for key, metadata in by_partition.items():
        if key in asked:
            context.add_asset_metadata(metadata, asset_key=table, partition_key=key)
        else:
            tags = {CODE_VERSION_TAG: version}
            context.log_event(
                dg.AssetMaterialization(table, partition=key, metadata=metadata, tags=tags)
            )


def _feed(source: Source) -> str:
    return f"{source.name}_feed"


def _tags(source: Source, show: Presentation) -> dict[str, str]:
    return {"tidemark/source": source.name, **show.tags}
