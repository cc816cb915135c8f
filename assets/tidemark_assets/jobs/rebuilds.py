"""The jobs of a domain for changed definitions: preview, rebuild, promote, and roll back.

A preview computes the effect and writes nothing. A rebuild writes side tables. Both list the
changed values, so that a person or another job can decide whether to promote the rebuilt tables.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from tidemark.base.errors import DataError
from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.run.change import rebuild as run
from tidemark.run.change.rebuild import RebuildStatus
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import Changes, compute_changes, find_differences
from tidemark_assets.base.cells import as_table, pairs
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.definition_check import compare_definitions, parts
from tidemark_assets.jobs.step_job import Step, asset_job

_SHOWN = 20
"""The number of values to list per asset."""

NONE = "The tables of all assets were made by the definitions in the code."


def rebuilds(
    domain: str, transforms: Mapping[str, Definition], names: Names = PLAIN
) -> dg.Definitions:
    """Create the jobs `<domain>_diff`, `_rebuild`, `_promote` and `_rollback`."""
    by_default = "those whose tables were made by another definition"

    class RebuildConfig(of_assets(domain, transforms, by_default=by_default, default=())):
        """The assets to rebuild."""

    class PreviewConfig(of_assets(domain, transforms, by_default=by_default, default=())):
        """The assets and the windows to compare."""

        start: str | None = Field(
            default=None,
            description="The first window start, ISO 8601 in UTC; all windows by default.",
        )
        end: str | None = Field(default=None, description="The exclusive end of the window starts.")

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

    def choose(step: Step[Any]) -> list[str]:
        return step.config.assets or _find_changed(step.tidemark.warehouse, transforms)

    def preview(step: Step[PreviewConfig], transform: Definition) -> Changes:
        start = None if step.config.start is None else instant(step.config.start)
        end = None if step.config.end is None else instant(step.config.end)
        return compute_changes(step.tidemark.warehouse, transform, start, end, most=_SHOWN)

    def rebuild(step: Step[RebuildConfig], transform: Definition) -> tuple[RebuildStatus, Changes]:
        warehouse = step.tidemark.warehouse
        made = run.rebuild(warehouse, transform)
        found = compute_changes(warehouse, transform, most=_SHOWN)
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
            f"{domain}_diff",
            f"{domain}_previews",
            "Reports how the definitions in the code differ from those of the tables, and which "
            "windows would change. It writes nothing.",
            PreviewConfig,
            transforms,
            preview,
            lambda found: {"changes": _preview_table(found), **_to_markdown(found)},
            choose,
        ),
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
                "rebuilt": _rebuild_table(done),
                **_to_markdown({a: found for a, (_, found) in done.items()}),
            },
            choose,
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
    step.log(compare_definitions(step.tidemark.warehouse, transform, step.names))
    step.log(*checks.current_results(step.names, step.tidemark.snapshot(), transform))


def _describe_swaps(done: Mapping[str, RunFacts]) -> dict[str, dg.TableMetadataValue]:
    columns = ("asset", "commit", "through arrival", "windows", "quarantined")
    rows = [
        (a, f.commit_number, f.through_arrival, f.windows, f.quarantined) for a, f in done.items()
    ]
    return {"tables": as_table(columns, rows)}


def _rebuild_table(done: Mapping[str, tuple[RebuildStatus, Changes]]) -> dg.MetadataValue[Any]:
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


def _find_changed(warehouse: Warehouse, transforms: Mapping[str, Definition]) -> list[str]:
    """Return the assets whose tables another definition wrote, wholly or in part."""
    found: list[str] = []
    for asset, transform in transforms.items():
        try:
            different = find_differences(warehouse, transform)
        except DataError:
            # The asset has not run yet, or its tables have no record of their definition.
            continue
        found += [] if different.same else [asset]
    return found


def _to_markdown(done: Mapping[str, Changes]) -> dict[str, dg.TableMetadataValue]:
    """Return the differences and the first values that would change, for each asset."""
    metadata: dict[str, dg.TableMetadataValue] = {}
    for asset, found in done.items():
        if found.differences:
            metadata[f"differences of {asset}"] = parts(found)
        if found.examples:
            metadata[f"changes of {asset}"] = _examples(found)
    return metadata


def _preview_table(done: Mapping[str, Changes]) -> dg.MetadataValue[Any]:
    if not done:
        return dg.MetadataValue.text(NONE)
    rows = list[tuple[object, ...]]()
    for asset, found in done.items():
        columns = (f"{name} {count or 'all'}" for name, count in found.columns.items())
        rows.append(
            (
                asset,
                f"{found.kinds} of {found.windows:,}",
                found.earliest,
                found.latest,
                ", ".join(columns),
            )
        )
    return as_table(("asset", "differing rows", "windows from", "to", "values"), rows)


def _examples(found: Changes) -> dg.TableMetadataValue:
    rows = [
        (e.window_start, pairs(e.keys), e.kind, e.column, e.before, e.after) for e in found.examples
    ]
    return as_table(("window", "keys", "row", "column", "before", "after"), rows)
