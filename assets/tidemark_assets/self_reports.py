"""What steps of Dagster should have told of their runs, and did not.

A run of Dagster writes to the ledger that its step reports it, and then the step does, with the
run's id in what it says of each partition. A step that was killed between the two has told
nothing, or half: so Dagster's event log is asked what it has of such a run.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dagster as dg

from tidemark.base.instants import over
from tidemark.define.definition import Definition
from tidemark_assets.names import Names
from tidemark_assets.partition_changes import Touched, alone, closed
from tidemark_assets.report import RUN
from tidemark_streaming.glance import Glance

PATIENCE = 300_000_000
"""Microseconds after which a step that has not told of its run is taken for dead."""

_PAGE = 200
"""Materializations read at a time."""


def overdue_runs(
    runs: Sequence[Mapping[str, Any]], heard: Collection[str]
) -> list[Mapping[str, Any]]:
    """The runs that should have told of themselves by now, and are not known to have."""
    now = time.time_ns() // 1000
    return [
        r
        for r in runs
        if r["reported"] and r["run"] not in heard and over(PATIENCE, r["ended_at"], now)
    ]


def untold_partitions(
    instance: dg.DagsterInstance,
    names: Names,
    glance: Glance,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    run: Mapping[str, Any],
) -> list[Touched]:
    """The closed partitions of which a run should have told, and Dagster's event log lacks it."""
    touched = list(closed(glance, transform, partitions, [alone(glance, run)]))
    there = dg.AssetRecordsFilter(
        asset_key=names.key(transform.table),
        asset_partitions=[t.key for t in touched],
        after_timestamp=run["started_at"] / 1e6,
    )
    known, cursor, more = set[str | None](), None, bool(touched)
    while more:
        page = instance.fetch_materializations(there, limit=_PAGE, cursor=cursor)
        known |= {r.partition_key for r in page.records if _run(r) == run["run"]}
        cursor, more = page.cursor, page.has_more
    return [t for t in touched if t.key not in known]


def _run(record: dg.EventLogRecord) -> object:
    """The run of the ledger of which a materialization tells."""
    said = record.asset_materialization
    found = said.metadata.get(RUN) if said is not None else None
    return found.value if found is not None else None
