"""The operation `replay`: recompute the windows of all events from an arrival onward.

The operation writes to the assets' tables, where only the windows of these events change, or to
side tables for inspection. The sensor `<domain>_reports` reports the partitions that changed.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import format_instant, parse_instant
from tidemark.define.definition import Definition
from tidemark.run.change import replay as run
from tidemark.run.change.replay import ReplayResult
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.steps import of_assets
from tidemark_assets.jobs.operations import Operation
from tidemark_assets.jobs.step_job import Step, for_each_asset


class ReplayConfig(dg.Config):
    """The start of the replay: an arrival or an instant."""

    from_arrival: int | None = Field(
        default=None, ge=0, description="The number of the first arrival."
    )
    from_instant: str | None = Field(
        default=None,
        description=(
            "Instead of a number: the first arrival at or after this processing time (ISO 8601, "
            "UTC)."
        ),
    )
    into: str | None = Field(
        default=None,
        description=(
            "Write side tables, <asset>__<into>, and change no others. Without it, the windows "
            "in the assets' own tables are replaced."
        ),
    )


def replay_operation(domain: str, transforms: Mapping[str, Definition]) -> Operation[Any]:
    """Return the operation that recomputes the windows of events from an arrival onward."""

    class OfAssetsConfig(of_assets(domain, transforms, by_default=None), ReplayConfig):
        """The assets and the start of the replay."""

    def choose(step: Step[OfAssetsConfig]) -> list[str]:
        if (step.config.from_arrival is None) == (step.config.from_instant is None):
            raise DefinitionError("Specify either `from_arrival` or `from_instant`, but not both.")
        return step.config.assets

    def replay(step: Step[OfAssetsConfig], transform: Definition) -> ReplayResult:
        return _replay(step.tidemark.warehouse, transform, step.config)

    def describe(results: Mapping[str, ReplayResult]) -> dict[str, dg.TableMetadataValue]:
        return {"replayed": _table(results)}

    return Operation(
        "replay",
        "Recomputes, with the definition in the code, every window that contains an event from a "
        "given arrival onward. Streams continue to run.",
        OfAssetsConfig,
        for_each_asset(transforms, replay, describe, choose),
    )


def _replay(warehouse: Warehouse, transform: Definition, config: ReplayConfig) -> ReplayResult:
    moment = None if config.from_instant is None else parse_instant(config.from_instant)
    since = run.find_first_arrival(Log(warehouse, transform.source), config.from_arrival, moment)
    if config.into is None:
        return run.replay_windows(warehouse, transform, since)
    return run.replay_to_side_tables(warehouse, transform, since, config.into)


def _table(results: Mapping[str, ReplayResult]) -> dg.TableMetadataValue:
    rows = [
        (
            asset,
            result.table,
            f"{result.since:,} to {result.through:,}",
            result.windows,
            _where(result),
            result.quarantined,
        )
        for asset, result in results.items()
    ]
    return as_table(("asset", "table", "arrivals", "windows", "window starts", "quarantined"), rows)


def _where(result: ReplayResult) -> str:
    if result.facts is None:
        return "none: these arrivals contain no events"
    start = format_instant(result.facts.window_from)
    end = format_instant(result.facts.window_to)
    if start is None:
        return "anywhere"
    return f"from {start} to {end}"
