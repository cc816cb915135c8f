"""The jobs of a domain for definitions that change: rebuild beside, switch, and switch back.

What a rebuild would change appears in its run, value by value, before anything is switched; so a
person, or another job, decides on it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import dagster as dg
from dagster import OpExecutionContext, ResourceParam
from pydantic import Field

from tidemark.base.errors import DataError, TidemarkError
from tidemark.define.definition import Definition
from tidemark.run import rebuild as run
from tidemark.run.rebuild import Rebuilt
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import Changes, changes, differences
from tidemark_assets.current import currency, listed
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.steps import Failures, chosen
from tidemark_streaming.orchestrator import ENGINE_POOL

SHOWN = 20
"""Values listed of each asset."""

_Swap = Callable[[Warehouse, Definition], RunFacts]


class RebuildConfig(dg.Config):
    """Which assets to rebuild."""

    assets: list[str] = Field(
        default=[], description="The assets; by default those whose tables another definition made."
    )


class SwapConfig(dg.Config):
    """Of which assets the tables change places."""

    assets: list[str] = Field(description="The assets, by name.")


class SwitchConfig(SwapConfig):
    """Which assets to switch to what was rebuilt."""

    way_back: bool = Field(
        default=True,
        description="Whether to keep what a switch replaces. Of tables that a killed run has left "
        "half published nothing can be kept: without a way back the switch goes on all the same.",
    )


def rebuilds(domain: str, transforms: Mapping[str, Definition]) -> dg.Definitions:
    """The jobs `<domain>_rebuild`, `<domain>_switch` and `<domain>_switch_back`."""

    @dg.op(name=f"{domain}_rebuilds", pool=ENGINE_POOL)
    def beside(
        context: OpExecutionContext,
        config: RebuildConfig,
        tidemark: ResourceParam[TidemarkResource],
    ) -> None:
        warehouse, failures = tidemark.warehouse, Failures(context)
        asked = chosen(config.assets, transforms) or _changed(warehouse, transforms)
        done: dict[str, tuple[Rebuilt, Changes]] = {}
        for asset in asked:
            transform = transforms[asset]
            try:
                done[asset] = (
                    run.rebuild(warehouse, transform),
                    changes(warehouse, transform, most=SHOWN),
                )
            except TidemarkError as error:
                failures.add(f"{asset}: {error}", error)
                continue
            _judge(context, warehouse, transform)
        context.add_output_metadata({"rebuilt": dg.MetadataValue.md(_table(done)), **_told(done)})
        failures.tell()

    @dg.job(
        name=f"{domain}_rebuild",
        description="Makes the tables of assets anew by the definition in the code, beside those "
        "that are there, and shows what would change. Streams go on; nothing is replaced.",
    )
    def rebuild() -> None:
        beside()

    @dg.op(name=f"{domain}_switch_tables", pool=ENGINE_POOL)
    def forward(
        context: OpExecutionContext,
        config: SwitchConfig,
        tidemark: ResourceParam[TidemarkResource],
    ) -> None:
        act = partial(run.switch, way_back=config.way_back)
        _swap(context, tidemark, chosen(config.assets, transforms), transforms, act)

    @dg.job(
        name=f"{domain}_switch",
        description="Puts what was rebuilt in the place of the assets' tables, in one commit each, "
        "with what has arrived since. The way back is open for seven days.",
    )
    def switch() -> None:
        forward()

    @dg.op(name=f"{domain}_switch_back_tables", pool=ENGINE_POOL)
    def backward(
        context: OpExecutionContext,
        config: SwapConfig,
        tidemark: ResourceParam[TidemarkResource],
    ) -> None:
        _swap(context, tidemark, chosen(config.assets, transforms), transforms, run.back)

    @dg.job(
        name=f"{domain}_switch_back",
        description="Puts back what the assets' tables had before their last switch. Put the "
        "earlier code back too: runs of the later one are refused.",
    )
    def back() -> None:
        backward()

    return dg.Definitions(jobs=[rebuild, switch, back])


def _swap(
    context: OpExecutionContext,
    tidemark: TidemarkResource,
    assets: Sequence[str],
    transforms: Mapping[str, Definition],
    act: _Swap,
) -> None:
    """Let the tables of assets change places, and tell what that gave."""
    done: dict[str, RunFacts] = {}
    failures = Failures(context)
    for asset in assets:
        try:
            done[asset] = act(tidemark.warehouse, transforms[asset])
        except TidemarkError as error:
            failures.add(str(error), error)
            continue
        _judge(context, tidemark.warehouse, transforms[asset])
    rows = ["| asset | commit | through arrival | windows | withheld |", "| --- " * 5 + "|"]
    rows += [
        f"| {asset} | {f.seq} | {f.through_arrival:,} | {f.windows:,} | {f.quarantined:,} |"
        for asset, f in done.items()
    ]
    context.add_output_metadata({"tables": dg.MetadataValue.md("\n".join(rows))})
    failures.tell()


def _changed(warehouse: Warehouse, transforms: Mapping[str, Definition]) -> list[str]:
    """The assets whose tables another definition made, wholly or in part."""
    found: list[str] = []
    for asset, transform in transforms.items():
        try:
            told = differences(warehouse, transform)
        except DataError:
            # It has not run yet, or its tables tell nothing.
            continue
        found += [] if told.same else [asset]
    return found


def _judge(context: OpExecutionContext, warehouse: Warehouse, transform: Definition) -> None:
    # It takes check results too, which its signature leaves out.
    context.log_event(currency(warehouse, transform))  # pyright: ignore[reportArgumentType]


def _table(done: Mapping[str, tuple[Rebuilt, Changes]]) -> str:
    if not done:
        return "The tables of all assets are made by the definitions in the code."
    rows = ["| asset | beside | through arrival | windows | rows that differ |", "| --- " * 5 + "|"]
    for asset, (made, found) in done.items():
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.rows.items()) or "none"
        rows.append(
            f"| {asset} | `{asset}__rebuild` | {made.through:,} (the asset: {made.current:,}) | "
            f"{made.windows:,} | {kinds} of {found.windows:,} |"
        )
    return "\n".join(rows)


def _told(
    done: Mapping[str, tuple[Rebuilt, Changes]],
) -> dict[str, dg.MarkdownMetadataValue]:
    """What differs, and the first values that would change, of each asset."""
    told: dict[str, dg.MarkdownMetadataValue] = {}
    for asset, (_, found) in done.items():
        if found.differences:
            told[f"what differs in {asset}"] = dg.MetadataValue.md(listed(found))
        if found.examples:
            told[f"changes of {asset}"] = dg.MetadataValue.md(_values(found))
    return told


def _values(found: Changes) -> str:
    rows: Sequence[str] = [
        f"| {e.window_start} | {', '.join(f'{k}={v}' for k, v in e.keys.items())} | {e.kind} | "
        f"{e.column or ''} | {e.before or ''} | {e.after or ''} |"
        for e in found.examples
    ]
    head = ["| window | keys | | column | before | after |", "| --- " * 6 + "|"]
    return "\n".join([*head, *rows])
