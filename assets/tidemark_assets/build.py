"""Dagster assets, built from definitions that know nothing of Dagster.

A windowed transform gives its published windows, its late events and their late loss, which one
step computes for any range of partitions in a single run; what a source gives is in `inflow`. What
a definition says becomes metadata of the assets (`describe`), and what a run found becomes metadata
of their materializations (`report`). How either is computed is the platform's business: no rule of
it belongs here.
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
from tidemark.quality import results
from tidemark.run import runner as run
from tidemark.store.log import Log
from tidemark_assets import checks, describe, report
from tidemark_assets.describe import Metadata
from tidemark_assets.names import PLAIN, Names
from tidemark_assets.parameter import WINDOWS
from tidemark_assets.provenance import inputs, made_of
from tidemark_assets.spans import spans
from tidemark_assets.steps import BackfillConfig, check_arrived, one_sentence
from tidemark_streaming.orchestrator import ENGINE_POOL

__all__ = ["Presentation"]

KINDS = {"spark", "deltalake"}

StepEvent = (
    dg.MaterializeResult[Any] | dg.AssetCheckEvaluation | dg.AssetObservation | dg.Output[None]
)


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
    """What a transform publishes, panes, late events and late loss: one run for any range."""
    name, source, partitions = transform.name, transform.source, show.partitions_of(transform.name)
    expected = checks.specs(names, transform, partitions)

    def spec(table: str, description: str, metadata: Metadata) -> dg.AssetSpec:
        return table_of(names, transform, group, show, table, description, metadata)

    published = spec(
        transform.table,
        transform.description,
        describe.windows(transform, names),
    )
    late = spec(
        transform.late_table,
        f"Events too late for their window of {name}, each with the window it missed and by how "
        "much, and events without an event time.",
        describe.late(transform),
    )
    loss = spec(
        transform.late_loss_table,
        f"Windows of {name} that lack late events: the answer as streamed beside the complete one.",
        describe.late_loss(transform),
    )

    specs = [published, late, loss]
    if transform.expectations:
        specs.append(withheld_rows(names, transform, group, show))
    if transform.accumulation is not None:
        panes = spec(
            transform.panes_table,
            f"Every firing of every window of {name}, in its order.",
            describe.panes(transform),
        )
        specs.append(panes)

    @step(names, transform, specs, expected, partitions)
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
            judged = (
                results.of_commit(warehouse, name, facts.seq, facts.life)
                if transform.expectations
                else []
            )
            drawn = checks.history(warehouse, transform, facts) if judged else {}
        for table, by_partition in found.items():
            _tell(context, names, transform, table, by_partition, facts.run)
            # By its version what is made of it in turn is stale, as Dagster's own goes by the log.
            version = dg.DataVersion(facts.run)
            yield dg.MaterializeResult(asset_key=names.key(table), data_version=version)
        yield from checks.evaluations(names, transform, judged, begins)
        if drawn:
            yield dg.AssetObservation(names.key(transform.quarantine_table), metadata=drawn)
        # What a check gave was logged by partition; its output only says that it is done.
        for check in expected:
            yield dg.Output(None, check.get_python_identifier())

    return compute


def step(
    names: Names,
    transform: Definition,
    specs: Sequence[dg.AssetSpec],
    expected: Sequence[dg.AssetCheckSpec],
    partitions: dg.TimeWindowPartitionsDefinition,
) -> Callable[[Callable[..., Iterator[StepEvent]]], dg.AssetsDefinition]:
    """Makes of a function the step of a transform, which runs once for any range of partitions."""
    return dg.multi_asset(
        name=names.own(transform.name),
        specs=specs,
        check_specs=expected,
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )


def table_of(
    names: Names,
    transform: Definition,
    group: str,
    show: Presentation,
    table: str,
    description: str,
    metadata: Metadata,
    automation: dg.AutomationCondition[dg.AssetKey] | None = None,
) -> dg.AssetSpec:
    """A table of a transform.

    Args:
        automation: where the domain's presentation says none.
    """
    own = show.automation.get(transform.name) if table == transform.table else None
    spec = dg.AssetSpec(
        names.key(table),
        deps=[*map(names.key, inputs(transform, table))],
        description=description,
        metadata=metadata,
        group_name=names.own(group),
        owners=show.owners,
        tags=tags_of(transform.source, show),
        kinds=KINDS,
        code_version=fingerprint(transform),
        automation_condition=own or automation,
    )
    return spec.with_io_manager_key(names.own(WINDOWS)) if table == transform.table else spec


def withheld_rows(
    names: Names, transform: Definition, group: str, show: Presentation
) -> dg.AssetSpec:
    """The quarantine of a transform."""
    return table_of(
        names,
        transform,
        group,
        show,
        transform.quarantine_table,
        f"Windows of {transform.name} that failed what is expected of them, instead of being "
        f"published; the jobs {names.own('release_quarantined')} and "
        f"{names.own('discard_quarantined')} decide about them.",
        describe.quarantine(transform),
    )


def _tell(
    context: AssetExecutionContext,
    names: Names,
    transform: Definition,
    table: str,
    by_partition: Mapping[str, Metadata],
    run: str,
) -> None:
    """Give a table's partitions their metadata, those too that nobody asked for."""
    asked = set(context.partition_keys)
    own, made = names.key(table), fingerprint(transform)
    tags = made_of(context, names, transform, table, made, run)
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
