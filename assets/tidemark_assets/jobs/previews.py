"""Preview the effect of a changed definition in a Dagster run.

The job `<domain>_diff` computes the effect and writes nothing. It shows the differences, the
number of rows that are added, removed and changed, and the first values before and after.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from tidemark.base.errors import DataError
from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import Changes, compute_changes, find_differences
from tidemark_assets.base.cells import as_table, pairs
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import of_assets
from tidemark_assets.checks.definition_check import parts
from tidemark_assets.jobs.step_job import Step, asset_job

SHOWN = 20
"""The number of values to list per asset."""

NONE = "The tables of all assets were made by the definitions in the code."


def previews(
    domain: str, transforms: Mapping[str, Definition], names: Names = PLAIN
) -> dg.Definitions:
    """Create the job `<domain>_diff`."""

    by_default = "those whose tables were made by another definition"

    class PreviewConfig(of_assets(domain, transforms, by_default=by_default, default=())):
        """The assets and the windows to compare."""

        start: str | None = Field(
            default=None,
            description="The first window start, ISO 8601 in UTC; all windows by default.",
        )
        end: str | None = Field(default=None, description="The exclusive end of the window starts.")

    def preview(step: Step[PreviewConfig], transform: Definition) -> Changes:
        start = None if step.config.start is None else instant(step.config.start)
        end = None if step.config.end is None else instant(step.config.end)
        return compute_changes(step.tidemark.warehouse, transform, start, end, most=SHOWN)

    job = asset_job(
        names,
        f"{domain}_diff",
        f"{domain}_previews",
        "Reports how the definitions in the code differ from those of the tables, and which "
        "windows would change. It writes nothing.",
        PreviewConfig,
        transforms,
        preview,
        lambda found: {"changes": _table(found), **to_markdown(found)},
        choose=lambda step: step.config.assets or find_changed(step.tidemark.warehouse, transforms),
    )
    return dg.Definitions(jobs=[job])


def find_changed(warehouse: Warehouse, transforms: Mapping[str, Definition]) -> list[str]:
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


def to_markdown(done: Mapping[str, Changes]) -> dict[str, dg.TableMetadataValue]:
    """Return the differences and the first values that would change, for each asset."""
    metadata: dict[str, dg.TableMetadataValue] = {}
    for asset, found in done.items():
        if found.differences:
            metadata[f"differences of {asset}"] = parts(found)
        if found.examples:
            metadata[f"changes of {asset}"] = _values(found)
    return metadata


def _table(done: Mapping[str, Changes]) -> dg.MetadataValue[Any]:
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


def _values(found: Changes) -> dg.TableMetadataValue:
    rows = [
        (e.window_start, pairs(e.keys), e.kind, e.column, e.before, e.after) for e in found.examples
    ]
    return as_table(("window", "keys", "row", "column", "before", "after"), rows)
