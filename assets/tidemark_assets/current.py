"""A check of each windowed asset: are its tables made by the definition in the code?

The words are those of `tidemark changes`. Nothing is computed: what differs is told by what the
tables' commits keep of their definition.
"""

import dagster as dg
from dagster import ResourceParam

from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.parts import Effect
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import MEANING, Changes, differences
from tidemark_assets.fresh import as_result
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.steps import one_sentence
from tidemark_streaming.orchestrator import ENGINE_POOL

CURRENT = "definition_is_current"

SAME = "The tables are made by the definition in the code."


def current_check(transform: Definition) -> dg.AssetChecksDefinition:
    """The check of an asset, as its page runs it; jobs that change its tables tell of it too."""

    @dg.asset_check(
        asset=transform.table,
        name=CURRENT,
        description="The tables are made by the definition in the code: a warning where runs go on "
        "with them, an error where none does until they are rebuilt.",
        pool=ENGINE_POOL,
    )
    def check(tidemark: ResourceParam[TidemarkResource]) -> dg.AssetCheckResult:
        with one_sentence():
            return as_result(currency(tidemark.warehouse, transform))

    return check


def currency(warehouse: Warehouse, transform: Definition) -> dg.AssetCheckEvaluation:
    """Whether an asset's tables are made by its definition, as the result of the check."""
    try:
        found = differences(warehouse, transform)
    except DataError as error:
        # It has not run yet, or its tables tell nothing of their definition.
        return _evaluation(transform, str(error))
    if found.same:
        return _evaluation(transform, SAME)
    return _evaluation(transform, _said(found), found)


def listed(found: Changes) -> str:
    """The parts that differ, as a table in markdown."""
    rows = [f"| {c.part} | {c.before or ''} | {c.after or ''} |" for c in found.differences]
    return "\n".join(["| part | in the tables | in the code |", "| --- | --- | --- |", *rows])


def _said(found: Changes) -> str:
    said: list[str] = []
    if found.differences:
        parts = ", ".join(str(c) for c in found.differences)
        said.append(f"The code differs in {parts}: {MEANING[found.effect]}.")
    if found.earlier_through is not None:
        said.append(
            f"What came through arrival {found.earlier_through:,} was counted by an earlier "
            "definition."
        )
    return " ".join(said).format(asset=found.asset)


def _evaluation(
    transform: Definition, said: str, found: Changes | None = None
) -> dg.AssetCheckEvaluation:
    stops = found is not None and found.effect is Effect.REBUILD
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(transform.table),
        check_name=CURRENT,
        passed=found is None,
        severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
        description=said,
        metadata={"what differs": dg.MetadataValue.md(listed(found))} if found is not None else {},
    )
