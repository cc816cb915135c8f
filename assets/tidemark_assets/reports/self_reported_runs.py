"""Find runs that Dagster steps should have reported, and did not.

A Dagster run records in the ledger that its step will report it. The step then reports each
partition with the run's ID. A step that was killed in between has reported nothing, or only a part.
Dagster's event log is therefore searched for the reports of such a run.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dagster as dg

from tidemark.base.instants import is_wait_over
from tidemark.define.definition import Definition
from tidemark_assets.base.names import Names
from tidemark_assets.metadata.run_metadata import RUN
from tidemark_assets.reports.partition_changes import (
    ChangedPartition,
    as_commit_range,
    closed_partitions,
)
from tidemark_streaming.snapshot.snapshot import Snapshot

REPORT_TIMEOUT_MICROS = 300_000_000
"""Microseconds after which a step that has not reported its run counts as dead."""

_PAGE = 200
"""The number of materializations to read at a time."""


def overdue_runs(
    runs: Sequence[Mapping[str, Any]], heard: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return the runs that have not reported themselves within `REPORT_TIMEOUT_MICROS`."""
    now = time.time_ns() // 1000
    return [
        r
        for r in runs
        if r["reported"]
        and r["run"] not in heard
        and is_wait_over(REPORT_TIMEOUT_MICROS, r["ended_at"], now)
    ]


def unreported_partitions(
    instance: dg.DagsterInstance,
    names: Names,
    snapshot: Snapshot,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    run: Mapping[str, Any],
) -> list[ChangedPartition]:
    """Return the closed partitions of a run that Dagster's event log lacks."""
    touched = list(
        closed_partitions(snapshot, transform, partitions, [as_commit_range(snapshot, run)])
    )
    records_filter = dg.AssetRecordsFilter(
        asset_key=names.key(transform.table),
        asset_partitions=[t.key for t in touched],
        after_timestamp=run["started_at"] / 1e6,
    )
    known, cursor, more = set[str | None](), None, bool(touched)
    while more:
        page = instance.fetch_materializations(records_filter, limit=_PAGE, cursor=cursor)
        known |= {r.partition_key for r in page.records if _run(r) == run["run"]}
        cursor, more = page.cursor, page.has_more
    return [t for t in touched if t.key not in known]


def _run(record: dg.EventLogRecord) -> object:
    """Return the run in the ledger to which a materialization belongs."""
    said = record.asset_materialization
    found = said.metadata.get(RUN) if said is not None else None
    return found.value if found is not None else None
