"""A check of each windowed asset. It passes if the definition in the code wrote the tables.

The check has the messages of `tidemark diff`. It computes nothing: the commits of the tables
contain the definition that wrote them. The asset's page can run the check at any time, and the jobs
that change the tables report it. The sensor `<domain>_reports` reports the check if the definition
in the code has changed, or if a run outside Dagster has changed the tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import Effect
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import EFFECT_TEXTS, Changes, find_differences
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks.page_checks import page_check
from tidemark_streaming.home.orchestrator import ENGINE_POOL

CURRENT = "definition_is_current"

SAME = "The tables were made by the definition in the code."


def current_check(transform: Definition, names: Names = PLAIN) -> dg.AssetChecksDefinition:
    """Return the check `definition_is_current`, which users can run on the asset's page."""
    return page_check(
        names.key(transform.published_table),
        names,
        CURRENT,
        "Whether the definition in the code made the tables. A warning if runs continue with them; "
        "an error if the asset must be rebuilt before it can run.",
        lambda tidemark: compare_definitions(tidemark.warehouse, transform, names),
        ENGINE_POOL,
    )


def compare_definitions(
    warehouse: Warehouse, transform: Definition, names: Names
) -> dg.AssetCheckEvaluation:
    """Return the result of the check whether the current definition wrote an asset's tables."""
    try:
        changes = find_differences(warehouse, transform)
    except DataError as error:
        # The asset has not run yet, or its tables have no record of their definition.
        return _evaluation(names, transform, str(error))
    if changes.has_same_definition:
        return _evaluation(names, transform, SAME)
    return _evaluation(names, transform, _describe(changes), changes)


def report_new_results(
    warehouse: Warehouse,
    transforms: Iterable[Definition],
    runs: Sequence[Mapping[str, Any]],
    last_results: dict[str, list[str | None]],
    names: Names,
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the check's result for each asset with a new definition in the code or a new message.

    Only assets with a new definition or a new run are checked. Roll-ups are left out.

    Args:
        runs: the new rows of the ledger, and some earlier ones.
        last_results: by asset, the definition, the run and the message at the last call. This
            function updates them.
    """
    newest = {r["asset"]: str(r["run"]) for r in runs}
    for transform in transforms:
        if transform.rolled_up_name is not None:
            continue
        name = transform.name
        definition = compute_fingerprint(transform)
        before, run, description = last_results.get(name, [None, None, None])
        current_run = newest.get(name, run)
        if (before, run) == (definition, current_run) and description is not None:
            continue
        evaluation = compare_definitions(warehouse, transform, names)
        if (before, description) != (definition, evaluation.description):
            yield evaluation
        last_results[name] = [definition, current_run, evaluation.description]


def parts(changes: Changes) -> dg.TableMetadataValue:
    """Return a table of the parts of the definition that differ."""
    rows = [(c.part, c.before, c.after) for c in changes.differences]
    return as_table(("part", "in the tables", "in the code"), rows)


def _describe(changes: Changes) -> str:
    sentences: list[str] = []
    if changes.differences:
        named = ", ".join(str(c) for c in changes.differences)
        sentences.append(
            f"The definition in the code differs from that of the tables in {named}: "
            f"{EFFECT_TEXTS[changes.effect]}."
        )
    if changes.earlier_through is not None:
        sentences.append(
            f"Events through arrival {changes.earlier_through:,} were computed by an earlier "
            "definition."
        )
    return " ".join(sentences).format(asset=changes.asset)


def _evaluation(
    names: Names, transform: Definition, description: str, changes: Changes | None = None
) -> dg.AssetCheckEvaluation:
    stops = changes is not None and changes.effect is Effect.REBUILD
    return dg.AssetCheckEvaluation(
        asset_key=names.key(transform.published_table),
        check_name=CURRENT,
        passed=changes is None,
        severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
        description=description,
        metadata={"differences": parts(changes)} if changes is not None else {},
    )
