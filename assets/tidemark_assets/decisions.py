"""What a person decides about windows in quarantine, as jobs of Dagster.

`release_quarantined` publishes them as they are, `discard_quarantined` leaves them out. Either is
launched with the asset and, if not all of its windows are meant, a range and keys.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
from dagster import OpExecutionContext, ResourceParam
from pydantic import Field

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.store.warehouse import Warehouse
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.steps import one_sentence
from tidemark_streaming.orchestrator import ENGINE_POOL

Action = Callable[[Warehouse, Definition, Choice], list[int]]


@dataclass(frozen=True)
class Judged:
    """A transform that expects something of its rows, and its partitions."""

    transform: Definition
    partitions: dg.TimeWindowPartitionsDefinition


class Decision(dg.Config):
    """Which windows of an asset."""

    asset: str = Field(description="The asset, as in departures_hourly.")
    start: str | None = Field(
        default=None, description="The first window start, ISO 8601 in UTC; all by default."
    )
    end: str | None = Field(default=None, description="The end of the window starts, exclusive.")
    keys: dict[str, str] = Field(
        default={}, description="Only windows of these keys, as in {origin: JFK}."
    )


def jobs(judged: Iterable[Judged]) -> list[dg.JobDefinition]:
    """The two jobs; none where nothing is judged."""
    by_name = {j.transform.name: j for j in judged}
    if not by_name:
        return []
    return [
        _job(
            "release_quarantined",
            "Publish windows that are withheld in quarantine as they are, marked `released`.",
            quarantine.release,
            by_name,
        ),
        _job(
            "discard_quarantined",
            "Leave windows that are withheld in quarantine out, until their values change.",
            quarantine.discard,
            by_name,
        ),
    ]


def _job(
    name: str, description: str, action: Action, judged: Mapping[str, Judged]
) -> dg.JobDefinition:
    @dg.op(name=name.removesuffix("_quarantined"), description=description, pool=ENGINE_POOL)
    def decide(
        context: OpExecutionContext,
        config: Decision,
        tidemark: ResourceParam[TidemarkResource],
    ) -> None:
        with one_sentence():
            chosen = _find(judged, config.asset)
            starts = action(tidemark.warehouse, chosen.transform, _choice(config))
        context.log.info(f"{len(starts)} windows of {config.asset}: {context.op.name}.")
        for event in _events(chosen, action, starts):
            context.log_event(event)

    @dg.job(name=name, description=description)
    def job() -> None:
        decide()

    return job


def _find(judged: Mapping[str, Judged], asset: str) -> Judged:
    if asset not in judged:
        known = ", ".join(judged) or "none"
        raise DefinitionError(f"Asset '{asset}' has no quarantine; those that have: {known}.")
    return judged[asset]


def _choice(config: Decision) -> Choice:
    start = None if config.start is None else instant(config.start)
    end = None if config.end is None else instant(config.end)
    return Choice(start, end, config.keys)


def _events(
    judged: Judged, action: Action, starts: list[int]
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """What changed, by partition: a release is new data for all that follow."""
    transform, partitions = judged.transform, judged.partitions
    keys = Counter(partitions.get_partition_key_for_timestamp(s / 1e6) for s in starts)
    for key, count in keys.items():
        if action is quarantine.release:
            yield dg.AssetMaterialization(
                transform.table, partition=key, metadata={"released windows": count}
            )
        yield dg.AssetObservation(
            transform.quarantine_table,
            partition=key,
            metadata={"windows that left": count, "decision": action.__name__},
        )
