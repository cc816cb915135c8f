"""Operations by which a person decides about windows in quarantine.

`release` publishes the windows as they are, `discard` leaves them unpublished. Their config has the
asset and, to select only some of its windows, a range and keys.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from tidemark.base.counts import format_count
from tidemark.base.instants import parse_instant
from tidemark.define.definition import Definition
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import Names
from tidemark_assets.base.steps import choice
from tidemark_assets.checks import checks
from tidemark_assets.jobs.operations import Operation
from tidemark_assets.jobs.step_job import Step
from tidemark_assets.metadata.provenance import find_definition, provenance_tags

_Action = Callable[[Warehouse, Definition, Choice], list[int]]


_Asset = tuple[Definition, dg.TimeWindowPartitionsDefinition]
"""A definition with expectations, and the partitions of its Dagster asset."""


class Decision(dg.Config):
    """The quarantined windows that an operation releases or discards."""

    asset: str
    start: str | None = Field(
        default=None,
        description="The first window start, ISO 8601 in UTC; all windows by default.",
    )
    end: str | None = Field(default=None, description="The exclusive end of the window starts.")
    keys: dict[str, str | None] = Field(
        default={},
        description="Only windows with these keys, for example {origin: JFK}, or {origin: null}.",
    )


def quarantine_operations(assets: Iterable[_Asset], names: Names) -> list[Operation[Any]]:
    """Return the operations `release` and `discard` of a domain's job of operations.

    Args:
        assets: the definitions that have expectations, each with its partitions. If there are none,
            the result is empty.
        names: the names of the domain's Dagster objects.
    """
    by_name = {asset[0].name: asset for asset in assets}
    if not by_name:
        return []
    return [
        _operation(
            "release",
            "Publishes quarantined windows as they are, marked `released`.",
            quarantine.release_windows,
            by_name,
            names,
        ),
        _operation(
            "discard",
            "Keeps quarantined windows unpublished until their values change.",
            quarantine.discard_windows,
            by_name,
            names,
        ),
    ]


def _operation(
    name: str,
    description: str,
    action: _Action,
    assets: Mapping[str, _Asset],
    names: Names,
) -> Operation[Any]:
    asset_field = (choice("assets_with_expectations", assets), Field(description="The asset."))

    class DecisionConfig(create_model("Decision", __base__=Decision, asset=asset_field)):
        """The asset, and its quarantined windows to release or discard."""

    def decide(step: Step[DecisionConfig]) -> None:
        tidemark = step.tidemark
        (transform, partitions) = assets[step.config.asset]
        starts = action(tidemark.warehouse, transform, _choice(step.config))
        definition = find_definition(tidemark.warehouse, transform)
        tags = provenance_tags(step.context, names, transform, definition, step.context.run_id)
        step.context.log.info(
            f"{format_count(len(starts), 'window')} of {step.config.asset}: {name}."
        )
        keys = Counter(partitions.get_partition_key_for_timestamp(s / 1e6) for s in starts)
        step.log(*_events(names.key(transform.published_table), action, keys, tags))
        step.log(*checks.current_results(names, tidemark.snapshot(), transform))

    return Operation(name, description, DecisionConfig, decide)


def _choice(config: Decision) -> Choice:
    start = None if config.start is None else parse_instant(config.start)
    end = None if config.end is None else parse_instant(config.end)
    return Choice(start, end, config.keys)


def _events(
    table: dg.AssetKey, action: _Action, keys: Mapping[str, int], tags: Mapping[str, str]
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """Yield one event per changed partition.

    A release is a materialization, because it is new data for downstream assets. A discard is an
    observation.
    """
    for key, count in keys.items():
        if action is quarantine.release_windows:
            released = {"released windows": count}
            yield dg.AssetMaterialization(table, partition=key, metadata=released, tags=tags)
        else:
            yield dg.AssetObservation(table, partition=key, metadata={"discarded windows": count})
