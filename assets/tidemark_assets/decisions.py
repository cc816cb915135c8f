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

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.store.warehouse import Warehouse
from tidemark_assets import checks
from tidemark_assets.names import Names
from tidemark_assets.provenance import definition_of, made_of
from tidemark_assets.steps import choice, one_sentence
from tidemark_streaming.orchestrator import ENGINE_POOL

Action = Callable[[Warehouse, Definition, Choice], list[int]]


@dataclass(frozen=True)
class Judged:
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


def jobs(judged: Iterable[Judged], names: Names) -> list[dg.JobDefinition]:
    """Return the two jobs; none if no transform has expectations."""
    by_name = {j.transform.name: j for j in judged}
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
    name: str, description: str, action: Action, judged: Mapping[str, Judged], names: Names
) -> dg.JobDefinition:
    asked = (choice("judged_assets", judged), Field(description="The asset."))

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
        with one_sentence():
            chosen = judged[config.asset]
            starts = action(tidemark.warehouse, chosen.transform, _choice(config))
            made = definition_of(tidemark.warehouse, chosen.transform)
        tags = made_of(context, names, chosen.transform, made, context.run_id)
        context.log.info(f"{len(starts)} windows of {config.asset}: {context.op.name}.")
        events = _events(chosen, action, starts, tags, names)
        for event in chain(events, checks.standing(names, tidemark.glance(), chosen.transform)):
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
    judged: Judged, action: Action, starts: list[int], tags: Mapping[str, str], names: Names
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """Yield the changes by partition: a release is new data for all downstream assets."""
    table, partitions = names.key(judged.transform.table), judged.partitions
    keys = Counter(partitions.get_partition_key_for_timestamp(s / 1e6) for s in starts)
    for key, count in keys.items():
        if action is quarantine.release:
            released = {"released windows": count}
            yield dg.AssetMaterialization(table, partition=key, metadata=released, tags=tags)
        else:
            yield dg.AssetObservation(table, partition=key, metadata={"discarded windows": count})
