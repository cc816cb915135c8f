"""The operation `correct`, which adds too-late events to the windows that lack them.

The run lists the changed values, and reports the changed partitions as materialized.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.define.definition import Definition
from tidemark.run import runner as run
from tidemark.run.correction import Correction
from tidemark_assets.base.cells import as_table, pairs
from tidemark_assets.base.spans import PartitionsOf
from tidemark_assets.base.steps import of_assets
from tidemark_assets.jobs.operations import Operation
from tidemark_assets.jobs.step_job import Step, for_each_asset

_SHOWN = 20
"""The number of changes to list per asset."""


def correct_operation(
    domain: str, transforms: Mapping[str, Definition], partitions: PartitionsOf
) -> Operation[Any]:
    """Return the operation that recomputes the windows that lack too-late events, and no others."""

    class CorrectConfig(of_assets(domain, transforms)):
        """The assets to correct."""

    def correct(step: Step[CorrectConfig], transform: Definition) -> Correction | None:
        warehouse = step.tidemark.warehouse
        correction = run.correct(warehouse, transform, max_listed=_SHOWN, reported=True)
        if correction is None:
            step.context.log.info(f"No window of {transform.name} is missing a too-late event.")
        else:
            step.log_run(transform, partitions(transform.name), correction.facts)
        return correction

    def describe(results: Mapping[str, Correction | None]) -> dict[str, dg.MetadataValue[Any]]:
        corrected = {asset: result for asset, result in results.items() if result is not None}
        return {"corrected": _table(corrected), **_changes(corrected)}

    return Operation(
        "correct",
        "Recomputes only the windows that are missing too-late events, and lists what changed. It "
        "processes no new arrivals, and can run while streams run.",
        CorrectConfig,
        for_each_asset(transforms, correct, describe),
    )


def _table(corrected: Mapping[str, Correction]) -> dg.MetadataValue[Any]:
    if not corrected:
        return dg.MetadataValue.text("No window is missing a too-late event.")
    rows = [
        (
            asset,
            correction.windows,
            correction.total,
            format_count(correction.facts.too_late, "event"),
            f"{correction.facts.seconds:.1f}",
        )
        for asset, correction in corrected.items()
    ]
    return as_table(("asset", "windows", "values", "too late", "seconds"), rows)


def _changes(corrected: Mapping[str, Correction]) -> dict[str, dg.TableMetadataValue]:
    metadata: dict[str, dg.TableMetadataValue] = {}
    for asset, correction in corrected.items():
        rows: list[tuple[object, ...]] = [
            (c.window_start, pairs(c.keys), c.column, c.before, c.after) for c in correction.changes
        ]
        if correction.total > len(correction.changes):
            rows.append((f"… and {correction.total - len(correction.changes):,} more",))
        columns = ("window", "keys", "column", "before", "after")
        metadata[f"changes of {asset}"] = as_table(columns, rows)
    return metadata
