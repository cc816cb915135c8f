"""The jobs of a domain for changed definitions: rebuild in side tables, promote, and roll back.

The run of the rebuild lists the changed values before anything is promoted, so that a person or
another job can decide.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg
from dagster import OpExecutionContext
from pydantic import Field

from tidemark.base.errors import TidemarkError
from tidemark.define.definition import Definition
from tidemark.run.change import rebuild as run
from tidemark.run.change.rebuild import RebuildStatus
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import Changes, compute_changes
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.base.steps import Failures, failing_with_message, of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.definition_check import compare_definitions
from tidemark_assets.jobs.previews import NONE, SHOWN, find_changed, kinds, to_markdown
from tidemark_streaming.home.orchestrator import ENGINE_POOL

_Swap = Callable[[Warehouse, Definition], RunFacts]


def rebuilds(
    domain: str, transforms: Mapping[str, Definition], names: Names = PLAIN
) -> dg.Definitions:
    """Create the jobs `<domain>_rebuild`, `<domain>_promote` and `<domain>_rollback`."""

    class RebuildConfig(
        of_assets(
            domain,
            transforms,
            by_default="those whose tables were made by another definition",
            default=(),
        )
    ):
        """The assets to rebuild."""

    class SwapConfig(of_assets(domain, transforms, by_default=None)):
        """The assets whose tables are replaced."""

    class PromotionConfig(SwapConfig):
        """The assets whose rebuilt tables are promoted."""

        keep_backup: bool = Field(
            default=True,
            description=(
                "Whether to keep a backup of the replaced tables. If a killed run has left the "
                "tables half published, no backup is possible: the promotion then requires this to "
                "be false."
            ),
        )

    @dg.op(
        name=names.own(f"{domain}_rebuilds"), pool=ENGINE_POOL, required_resource_keys=names.needs
    )
    def rebuild_tables(
        context: OpExecutionContext,
        config: RebuildConfig,
    ) -> None:
        tidemark, failures = names.tidemark(context), Failures(context)
        with failing_with_message():
            warehouse = tidemark.warehouse
            asked = config.assets or find_changed(warehouse, transforms)
        done: dict[str, tuple[RebuildStatus, Changes]] = {}
        for asset in asked:
            transform = transforms[asset]
            try:
                done[asset] = (
                    run.rebuild(warehouse, transform),
                    compute_changes(warehouse, transform, most=SHOWN),
                )
            except TidemarkError as error:
                failures.add(f"{asset}: {error}", error)
                continue
            _report_definition(context, names, warehouse, transform)
        context.add_output_metadata(
            {
                "rebuilt": _table(done),
                **to_markdown({a: found for a, (_, found) in done.items()}),
            }
        )
        failures.raise_all()

    @dg.job(
        name=names.own(f"{domain}_rebuild"),
        description=(
            "Computes new tables of the assets with the definition in the code, next to the "
            "existing tables, and shows what would change. Streams continue to run; nothing is "
            "replaced."
        ),
    )
    def rebuild() -> None:
        rebuild_tables()

    @dg.op(
        name=names.own(f"{domain}_promotions"),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def promote_tables(
        context: OpExecutionContext,
        config: PromotionConfig,
    ) -> None:
        tidemark = names.tidemark(context)
        act = partial(run.promote, keep_backup=config.keep_backup)
        _swap(context, names, tidemark, config.assets, transforms, act)

    @dg.job(
        name=names.own(f"{domain}_promote"),
        description=(
            "Replaces the assets' tables with the rebuilt ones, in one commit each, including "
            "what has arrived since. It can be undone for seven days."
        ),
    )
    def promote() -> None:
        promote_tables()

    @dg.op(
        name=names.own(f"{domain}_rollbacks"),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def roll_back_tables(
        context: OpExecutionContext,
        config: SwapConfig,
    ) -> None:
        tidemark = names.tidemark(context)
        _swap(context, names, tidemark, config.assets, transforms, run.roll_back)

    @dg.job(
        name=names.own(f"{domain}_rollback"),
        description=(
            "Restores the assets' tables from before their last promotion. Restore the earlier "
            "code too: runs with the later code are refused."
        ),
    )
    def rollback() -> None:
        roll_back_tables()

    return dg.Definitions(jobs=[rebuild, promote, rollback])


def _swap(
    context: OpExecutionContext,
    names: Names,
    tidemark: TidemarkResource,
    assets: Sequence[str],
    transforms: Mapping[str, Definition],
    act: _Swap,
) -> None:
    """Replace the tables of assets, and report the results."""
    done: dict[str, RunFacts] = {}
    failures = Failures(context)
    for asset in assets:
        try:
            done[asset] = act(tidemark.warehouse, transforms[asset])
        except TidemarkError as error:
            failures.add(str(error), error)
            continue
        _report_definition(context, names, tidemark.warehouse, transforms[asset])
        for evaluation in checks.current_results(names, tidemark.snapshot(), transforms[asset]):
            context.log_event(evaluation)  # pyright: ignore[reportArgumentType]
    columns = ("asset", "commit", "through arrival", "windows", "quarantined")
    rows = [
        (a, f.commit_number, f.through_arrival, f.windows, f.quarantined) for a, f in done.items()
    ]
    context.add_output_metadata({"tables": as_table(columns, rows)})
    failures.raise_all()


def _report_definition(
    context: OpExecutionContext, names: Names, warehouse: Warehouse, transform: Definition
) -> None:
    # The method accepts check results too, although its signature omits them.
    context.log_event(compare_definitions(warehouse, transform, names))  # pyright: ignore[reportArgumentType]


def _table(done: Mapping[str, tuple[RebuildStatus, Changes]]) -> dg.MetadataValue[Any]:
    if not done:
        return dg.MetadataValue.text(NONE)
    rows = [
        (
            asset,
            f"{asset}__rebuild",
            f"{made.through:,} (the asset: {made.current:,})",
            made.windows,
            f"{kinds(found)} of {found.windows:,}",
        )
        for asset, (made, found) in done.items()
    ]
    return as_table(
        ("asset", "rebuilt table", "through arrival", "windows", "differing rows"), rows
    )
