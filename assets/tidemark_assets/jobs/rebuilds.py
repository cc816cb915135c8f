"""The operations for changed definitions: `diff`, `rebuild`, `promote`, and `rollback`.

`diff` computes the effect and writes nothing. A rebuild writes side tables. Both list the
changed values, so that a person or another run can decide whether to promote the rebuilt tables.

Derived sources, such as joins, are rebuilt and promoted, too. They have no diff and no rollback,
like in `tidemark rebuild`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import dagster as dg
from pydantic import Field

from tidemark.base.errors import DataError
from tidemark.base.instants import parse_instant
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.run.change import rebuild as run
from tidemark.run.change.rebuild import RebuildStatus
from tidemark.store.ledger import RunFacts
from tidemark.store.lineage import Lineage, WarehouseReader, rebuild_advice
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import Changes, compute_changes, find_differences
from tidemark_assets.base.cells import as_table, pairs
from tidemark_assets.base.steps import of_assets
from tidemark_assets.checks import checks
from tidemark_assets.checks.definition_check import compare_definitions, parts
from tidemark_assets.jobs.operations import Operation
from tidemark_assets.jobs.step_job import Step, for_each_asset
from tidemark_streaming.derived import rebuild as source_rebuild
from tidemark_streaming.derived.rebuild import PromotedSource, RebuiltSource

_Node: TypeAlias = Definition | DerivedSource
_Rebuilt: TypeAlias = tuple[RebuildStatus, Changes] | RebuiltSource

_SHOWN = 20
"""The number of values to list per asset."""

NONE = "All tables were made by the definitions in the code."


_CHANGED = "those whose tables were made by another definition"
"""The default choice of assets."""


def rebuild_operations(
    domain: str, transforms: Mapping[str, Definition], derived: Mapping[str, DerivedSource]
) -> list[Operation[Any]]:
    """Return the operations `diff`, `rebuild`, `promote` and `rollback`.

    Without assets, the operations are only `rebuild` and `promote`.

    Args:
        derived: the derived sources to rebuild, by name.
    """
    operations = [
        _rebuild_operation(domain, transforms, derived),
        _promotion_operation(domain, transforms, derived),
    ]
    if transforms:
        operations.insert(0, _diff_operation(domain, transforms))
        operations.append(_rollback_operation(domain, transforms))
    return operations


def _rebuild_operation(
    domain: str,
    transforms: Mapping[str, Definition],
    derived: Mapping[str, DerivedSource],
) -> Operation[Any]:
    # Derived sources come first, because assets read them.
    nodes: Mapping[str, _Node] = {**derived, **transforms}
    by_default = f"{_CHANGED}, and derived sources that are stale"

    class RebuildConfig(of_assets(domain, nodes, by_default=by_default, default=())):
        """The assets and derived sources to rebuild."""

    def choose(step: Step[RebuildConfig]) -> list[str]:
        if step.config.assets:
            return step.config.assets
        warehouse = step.tidemark.warehouse
        return [*_find_stale(warehouse, derived), *_find_changed(warehouse, transforms)]

    return Operation(
        "rebuild",
        "Computes new tables of assets and derived sources with the definition in the code, "
        "next to the existing tables, and shows what would change. Streams continue to run; "
        "nothing is replaced.",
        RebuildConfig,
        for_each_asset(nodes, _rebuild, _describe_rebuilt, choose),
    )


def _rebuild(step: Step[Any], node: _Node) -> _Rebuilt:
    warehouse = step.tidemark.warehouse
    if isinstance(node, DerivedSource):
        for _ in source_rebuild.rebuild_source(warehouse, node):
            pass
        return source_rebuild.describe_rebuilt(warehouse, node)
    status = run.rebuild_tables(warehouse, node)
    changes = compute_changes(warehouse, node, max_listed=_SHOWN)
    step.log(compare_definitions(warehouse, node, step.names))
    return status, changes


def _promotion_operation(
    domain: str,
    transforms: Mapping[str, Definition],
    derived: Mapping[str, DerivedSource],
) -> Operation[Any]:
    nodes: Mapping[str, _Node] = {**derived, **transforms}

    class PromotionConfig(of_assets(domain, nodes, by_default=None)):
        """The assets and derived sources whose rebuilt tables are promoted."""

        keep_backup: bool = Field(
            default=True,
            description=(
                "Whether to keep a backup of the replaced tables. If a killed run has left the "
                "tables half published, no backup is possible: the promotion then requires this to "
                "be false."
            ),
        )

    def promote(step: Step[PromotionConfig], node: _Node) -> RunFacts | PromotedSource:
        warehouse = step.tidemark.warehouse
        keep_backup = step.config.keep_backup
        if isinstance(node, DerivedSource):
            if not keep_backup:
                raise source_rebuild.no_backup(node)
            return source_rebuild.promote_source(warehouse, node)
        facts = run.promote_tables(warehouse, node, keep_backup=keep_backup)
        _report(step, node)
        return facts

    return Operation(
        "promote",
        "Replaces the assets' tables with the rebuilt ones, in one commit each, including what "
        "has arrived since. For assets, it can be undone for seven days. Everything that reads "
        "a promoted derived source is stale until it is recomputed.",
        PromotionConfig,
        for_each_asset(nodes, promote, _describe_swaps),
    )


def _diff_operation(domain: str, transforms: Mapping[str, Definition]) -> Operation[Any]:
    class DiffConfig(of_assets(domain, transforms, by_default=_CHANGED, default=())):
        """The assets and the windows to compare."""

        start: str | None = Field(
            default=None,
            description="The first window start, ISO 8601 in UTC; all windows by default.",
        )
        end: str | None = Field(default=None, description="The exclusive end of the window starts.")

    def choose(step: Step[DiffConfig]) -> list[str]:
        return step.config.assets or _find_changed(step.tidemark.warehouse, transforms)

    def compute_diff(step: Step[DiffConfig], transform: Definition) -> Changes:
        start = None if step.config.start is None else parse_instant(step.config.start)
        end = None if step.config.end is None else parse_instant(step.config.end)
        return compute_changes(step.tidemark.warehouse, transform, start, end, max_listed=_SHOWN)

    return Operation(
        "diff",
        "Reports how the definitions in the code differ from those of the tables, and "
        "which windows would change. It writes nothing.",
        DiffConfig,
        for_each_asset(
            transforms,
            compute_diff,
            lambda changes: {"changes": _preview_table(changes), **_to_markdown(changes)},
            choose,
        ),
    )


def _rollback_operation(domain: str, transforms: Mapping[str, Definition]) -> Operation[Any]:
    class RollbackConfig(of_assets(domain, transforms, by_default=None)):
        """The assets whose tables are replaced."""

    def roll_back(step: Step[RollbackConfig], transform: Definition) -> RunFacts:
        facts = run.roll_back(step.tidemark.warehouse, transform)
        _report(step, transform)
        return facts

    return Operation(
        "rollback",
        "Restores the assets' tables from before their last promotion. Restore the earlier "
        "code too: runs with the later code are refused.",
        RollbackConfig,
        for_each_asset(transforms, roll_back, _describe_swaps),
    )


def _report(step: Step[Any], transform: Definition) -> None:
    step.log(compare_definitions(step.tidemark.warehouse, transform, step.names))
    step.log(*checks.current_results(step.names, step.tidemark.snapshot(), transform))


def _describe_swaps(
    results: Mapping[str, RunFacts | PromotedSource],
) -> dict[str, dg.TableMetadataValue]:
    assets = {name: facts for name, facts in results.items() if isinstance(facts, RunFacts)}
    sources = [source for source in results.values() if isinstance(source, PromotedSource)]
    columns = ("asset", "commit", "through arrival", "windows", "quarantined")
    rows = [
        (a, f.commit_number, f.through_arrival, f.windows, f.quarantined) for a, f in assets.items()
    ]
    metadata = {"tables": as_table(columns, rows)} if rows else {}
    if sources:
        promoted = [(source.source, source.arrivals, ", ".join(source.stale)) for source in sources]
        columns = ("derived source", "arrivals", "stale until recomputed")
        metadata["derived sources"] = as_table(columns, promoted)
    return metadata


def _describe_rebuilt(results: Mapping[str, _Rebuilt]) -> dict[str, dg.MetadataValue[Any]]:
    assets = dict[str, tuple[RebuildStatus, Changes]]()
    sources = list[RebuiltSource]()
    for name, result in results.items():
        if isinstance(result, RebuiltSource):
            sources.append(result)
        else:
            assets[name] = result
    metadata: dict[str, dg.MetadataValue[Any]] = {}
    if assets or not sources:
        metadata["rebuilt"] = _rebuild_table(assets)
    if sources:
        rows = [
            (result.source, ", ".join(result.tables), result.arrivals, result.rows)
            for result in sources
        ]
        columns = ("derived source", "rebuilt tables", "arrivals", "rows")
        metadata["rebuilt sources"] = as_table(columns, rows)
    return metadata | _to_markdown({name: changes for name, (_, changes) in assets.items()})


def _rebuild_table(results: Mapping[str, tuple[RebuildStatus, Changes]]) -> dg.MetadataValue[Any]:
    if not results:
        return dg.MetadataValue.text(NONE)
    rows = [
        (
            asset,
            f"{asset}__rebuild",
            f"{status.through:,} (the asset: {status.current:,})",
            status.windows,
            f"{changes.row_counts_text} of {changes.windows:,}",
        )
        for asset, (status, changes) in results.items()
    ]
    return as_table(
        ("asset", "rebuilt table", "through arrival", "windows", "differing rows"), rows
    )


def _find_changed(warehouse: Warehouse, transforms: Mapping[str, Definition]) -> list[str]:
    """Return the assets whose tables another definition wrote, wholly or in part."""
    changed: list[str] = []
    for asset, transform in transforms.items():
        try:
            different = find_differences(warehouse, transform)
        except DataError:
            # The asset has not run yet, or its tables have no record of their definition.
            continue
        changed += [] if different.has_same_definition else [asset]
    return changed


def _find_stale(warehouse: Warehouse, derived: Mapping[str, DerivedSource]) -> list[str]:
    """Return the derived sources that are stale themselves, and not because of what they read."""
    lineage = Lineage(WarehouseReader(warehouse))
    stale_sources = list[str]()
    for name, source in derived.items():
        stale = lineage.of_source(source)
        if stale is not None and stale.remedy == rebuild_advice(name):
            stale_sources.append(name)
    return stale_sources


def _to_markdown(results: Mapping[str, Changes]) -> dict[str, dg.TableMetadataValue]:
    """Return the differences and the first values that would change, for each asset."""
    metadata: dict[str, dg.TableMetadataValue] = {}
    for asset, changes in results.items():
        if changes.differences:
            metadata[f"differences of {asset}"] = parts(changes)
        if changes.examples:
            metadata[f"changes of {asset}"] = _examples(changes)
    return metadata


def _preview_table(results: Mapping[str, Changes]) -> dg.MetadataValue[Any]:
    if not results:
        return dg.MetadataValue.text(NONE)
    rows = list[tuple[object, ...]]()
    for asset, changes in results.items():
        columns = (f"{name} {count or 'all'}" for name, count in changes.columns.items())
        rows.append(
            (
                asset,
                f"{changes.row_counts_text} of {changes.windows:,}",
                changes.earliest,
                changes.latest,
                ", ".join(columns),
            )
        )
    return as_table(("asset", "differing rows", "windows from", "to", "values"), rows)


def _examples(changes: Changes) -> dg.TableMetadataValue:
    rows = [
        (e.window_start, pairs(e.keys), e.kind, e.column, e.before, e.after)
        for e in changes.examples
    ]
    return as_table(("window", "keys", "row", "column", "before", "after"), rows)
