"""Report the effects of a run in the ledger as Dagster events.

The sensor `<domain>_reports` reports runs that began outside Dagster. A Dagster step logs its own
run, so that the events belong to its Dagster run.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any

import dagster as dg
from dagster import OpExecutionContext

from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks import checks
from tidemark_assets.metadata.describe import Metadata
from tidemark_assets.metadata.provenance import Context, provenance_tags
from tidemark_assets.metadata.run_metadata import (
    ROWS,
    RUN,
    as_timestamp,
    run_durations,
    windows_metadata,
)
from tidemark_assets.reports.partition_changes import (
    ChangedPartition,
    as_commit_range,
    closed_partitions,
)

AssetEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

_MADE_BY = {
    "incremental": "a stream or an incremental run",
    "backfill": "a backfill outside Dagster",
    "correction": "a correction",
    "erasure": "an erasure",
    "rollup": "a run of a roll-up",
    "promotion": "a promotion of rebuilt tables",
    "rollback": "a rollback to earlier tables",
}


def reports(
    context: Context,
    names: Names,
    warehouse: Warehouse,
    transform: Definition,
    definition: str,
    touched: list[ChangedPartition],
    run: Mapping[str, Any],
    made_by: str | None = None,
    together: Collection[str] = (),
) -> Iterator[dg.AssetMaterialization]:
    """Yield a materialization of each closed partition that a run changed.

    Args:
        definition: the fingerprint of the definition that wrote the windows.
        touched: the changed partitions.
        run: the run's row of the ledger, with instants in microseconds.
        made_by: the origin of the run, as text; by default, a text for the run's mode, for example
            `a correction`.
        together: tables that are reported at the same time (`provenance_tags`).
    """
    common = {
        "made by": made_by or _MADE_BY[run["mode"]],
        RUN: run["run"],
        "up to date through arrival": run["through_arrival"],
        "watermark now": as_timestamp(run["watermark"]),
        **run_durations(run),
    }
    tags = provenance_tags(context, names, transform, definition, run["run"], together)
    table_facts: Metadata = {}
    if touched:
        table_facts = windows_metadata(warehouse, transform, names)
    for partition in touched:
        partition_facts = {
            ROWS: partition.rows,
            "events in windows": partition.events,
            "late events in windows": partition.late,
            "windows not final": partition.changing,
        }
        yield dg.AssetMaterialization(
            names.key(transform.published_table),
            partition=partition.key,
            metadata=common | table_facts | partition_facts,
            tags=tags,
        )


def log_run(
    context: OpExecutionContext,
    names: Names,
    tidemark: TidemarkResource,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    facts: RunFacts,
    but: Collection[str] = (),
) -> None:
    """Log the partitions that a step's run closed or later changed, and the asset's checks.

    Log nothing if another process took over the run and finished it: the sensor then reports it.

    Args:
        but: the keys of partitions to leave out, because the step reports them in another way.
    """
    if not facts.reported:
        return
    run = asdict(facts)
    snapshot = tidemark.snapshot()
    touched = closed_partitions(snapshot, transform, partitions, [as_commit_range(snapshot, run)])
    reported = [t for t in touched if t.key not in but]
    definition = compute_fingerprint(transform)
    made_by = f"a run of {context.run.job_name}"
    events = reports(context, names, tidemark.tables, transform, definition, reported, run, made_by)
    log_events(context, chain(events, checks.current_results(names, snapshot, transform)))


def log_events(context: OpExecutionContext, events: Iterable[AssetEvent]) -> None:
    """Log events of assets as events of the running step."""
    for event in events:
        # The method accepts check results too, although its signature omits them.
        context.log_event(event)  # pyright: ignore[reportArgumentType]
