"""Jobs by which a person decides about windows in quarantine.

`release_quarantined` publishes them as they are, `discard_quarantined` leaves them out. Each is
launched with the asset and, to select only some of its windows, with a range and keys.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import dagster as dg
from dagster import OpExecutionContext
from pydantic import Field, create_model

from tidemark.base.counts import format_count
from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import Names
from tidemark_assets.base.steps import choice, failing_with_message
from tidemark_assets.checks import checks
from tidemark_assets.metadata.provenance import find_definition, provenance_tags
from tidemark_streaming.home.orchestrator import ENGINE_POOL

Action = Callable[[Warehouse, Definition, Choice], list[int]]


@dataclass(frozen=True)
class AssetWithExpectations:
    """A transform with expectations, and its partitions."""

    transform: Definition
    partitions: dg.TimeWindowPartitionsDefinition


class Decision(dg.Config):
    """The windows of an asset to decide about."""

    asset: str
    start: str | None = Field(
        default=None,
        description="The first window start, ISO 8601 in UTC; all windows by default.",
    )
    end: str | None = Field(default=None, description="The exclusive end of the window starts.")
    keys: dict[str, str] = Field(
        default={}, description="Only windows with these keys, for example {origin: JFK}."
    )


def quarantine_jobs(
    assets: Iterable[AssetWithExpectations], names: Names
) -> list[dg.JobDefinition]:
    """Return the two jobs; none if no transform has expectations."""
    by_name = {j.transform.name: j for j in assets}
    if not by_name:
        return []
    return [
        _job(
            "release_quarantined",
            "Publishes quarantined windows as they are, marked `released`.",
            quarantine.release,
            by_name,
            names,
        ),
        _job(
            "discard_quarantined",
            "Keeps quarantined windows unpublished until their values change.",
            quarantine.discard,
            by_name,
            names,
        ),
    ]


def _job(
    name: str,
    description: str,
    action: Action,
    assets: Mapping[str, AssetWithExpectations],
    names: Names,
) -> dg.JobDefinition:
    asked = (choice("assets_with_expectations", assets), Field(description="The asset."))

    class DecisionConfig(create_model("Decision", __base__=Decision, asset=asked)):
        """The asset, and its windows to decide about."""

    @dg.op(
        name=names.own(name.removesuffix("_quarantined")),
        description=description,
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def decide(
        context: OpExecutionContext,
        config: DecisionConfig,
    ) -> None:
        tidemark = names.tidemark(context)
        with failing_with_message():
            chosen = assets[config.asset]
            starts = action(tidemark.warehouse, chosen.transform, _choice(config))
            made = find_definition(tidemark.warehouse, chosen.transform)
        tags = provenance_tags(context, names, chosen.transform, made, context.run_id)
        context.log.info(
            f"{format_count(len(starts), 'window')} of {config.asset}: {context.op.name}."
        )
        events = _events(chosen, action, starts, tags, names)
        for event in chain(
            events, checks.current_results(names, tidemark.snapshot(), chosen.transform)
        ):
            # The method accepts check results too, although its signature omits them.
            context.log_event(event)  # pyright: ignore[reportArgumentType]

    @dg.job(name=names.own(name), description=description)
    def job() -> None:
        decide()

    return job


def _choice(config: Decision) -> Choice:
    start = None if config.start is None else instant(config.start)
    end = None if config.end is None else instant(config.end)
    return Choice(start, end, config.keys)


def _events(
    asset: AssetWithExpectations,
    action: Action,
    starts: list[int],
    tags: Mapping[str, str],
    names: Names,
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """Yield one event per changed partition. A release is new data for all downstream assets."""
    table, partitions = names.key(asset.transform.table), asset.partitions
    keys = Counter(partitions.get_partition_key_for_timestamp(s / 1e6) for s in starts)
    for key, count in keys.items():
        if action is quarantine.release:
            released = {"released windows": count}
            yield dg.AssetMaterialization(table, partition=key, metadata=released, tags=tags)
        else:
            yield dg.AssetObservation(table, partition=key, metadata={"discarded windows": count})
