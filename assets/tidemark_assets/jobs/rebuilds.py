"""The jobs of a domain for changed definitions: rebuild in side tables, promote, and roll back.

The run of the rebuild lists the changed values before anything is promoted, so that a person or
another job can decide.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from tidemark.define.definition import Definition
from tidemark.run.change import rebuild as run
from tidemark.run.change.rebuild import RebuildStatus
from tidemark.store.ledger import RunFacts
from tidemark.verify.changes import Changes, compute_changes
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.definition_check import compare_definitions
from tidemark_assets.jobs.previews import NONE, SHOWN, find_changed, to_markdown
from tidemark_assets.jobs.step_job import Step, asset_job


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

    def rebuild(step: Step[RebuildConfig], transform: Definition) -> tuple[RebuildStatus, Changes]:
        warehouse = step.tidemark.warehouse
        made = run.rebuild(warehouse, transform)
        found = compute_changes(warehouse, transform, most=SHOWN)
        step.log(compare_definitions(warehouse, transform, names))
        return made, found

    def promote(step: Step[PromotionConfig], transform: Definition) -> RunFacts:
        facts = run.promote(step.tidemark.warehouse, transform, keep_backup=step.config.keep_backup)
        _report(step, transform)
        return facts

    def roll_back(step: Step[SwapConfig], transform: Definition) -> RunFacts:
        facts = run.roll_back(step.tidemark.warehouse, transform)
        _report(step, transform)
        return facts

    jobs = [
        asset_job(
            names,
            f"{domain}_rebuild",
            f"{domain}_rebuilds",
            "Computes new tables of the assets with the definition in the code, next to the "
            "existing tables, and shows what would change. Streams continue to run; nothing is "
            "replaced.",
            RebuildConfig,
            transforms,
            rebuild,
            lambda done: {
                "rebuilt": _table(done),
                **to_markdown({a: found for a, (_, found) in done.items()}),
            },
            choose=lambda step: (
                step.config.assets or find_changed(step.tidemark.warehouse, transforms)
            ),
        ),
        asset_job(
            names,
            f"{domain}_promote",
            f"{domain}_promotions",
            "Replaces the assets' tables with the rebuilt ones, in one commit each, including what "
            "has arrived since. It can be undone for seven days.",
            PromotionConfig,
            transforms,
            promote,
            _describe_swaps,
        ),
        asset_job(
            names,
            f"{domain}_rollback",
            f"{domain}_rollbacks",
            "Restores the assets' tables from before their last promotion. Restore the earlier "
            "code too: runs with the later code are refused.",
            SwapConfig,
            transforms,
            roll_back,
            _describe_swaps,
        ),
    ]
    return dg.Definitions(jobs=jobs)


def _report(step: Step[Any], transform: Definition) -> None:
    """Report the checks of an asset whose tables were replaced."""
    step.log(compare_definitions(step.tidemark.warehouse, transform, step.names))
    step.log(*checks.current_results(step.names, step.tidemark.snapshot(), transform))


def _describe_swaps(done: Mapping[str, RunFacts]) -> dict[str, dg.TableMetadataValue]:
    columns = ("asset", "commit", "through arrival", "windows", "quarantined")
    rows = [
        (a, f.commit_number, f.through_arrival, f.windows, f.quarantined) for a, f in done.items()
    ]
    return {"tables": as_table(columns, rows)}


def _table(done: Mapping[str, tuple[RebuildStatus, Changes]]) -> dg.MetadataValue[Any]:
    if not done:
        return dg.MetadataValue.text(NONE)
    rows = [
        (
            asset,
            f"{asset}__rebuild",
            f"{made.through:,} (the asset: {made.current:,})",
            made.windows,
            f"{found.kinds} of {found.windows:,}",
        )
        for asset, (made, found) in done.items()
    ]
    return as_table(
        ("asset", "rebuilt table", "through arrival", "windows", "differing rows"), rows
    )
