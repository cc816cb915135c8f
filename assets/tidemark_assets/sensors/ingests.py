"""Report arrivals that were ingested outside Dagster.

An ingest in Dagster reports itself. An ingest on the command line only adds rows to the timeline. A
tick therefore finds arrivals that Dagster does not know, and reports the log as materialized.
Otherwise, Dagster would show the log as if it had never been filled.
"""

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.define.source import Source
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks.source_checks import check_arrivals
from tidemark_assets.metadata import run_metadata
from tidemark_assets.metadata.provenance import data_version, log_data_version, version_tags
from tidemark_assets.metadata.side_tables import row_count
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick


def ingests_reporter(source: Source, names: Names = PLAIN) -> SensorPart:
    """Return the reporter of a source's arrivals that Dagster did not ingest."""
    name = source.name

    def report(tick: Tick) -> PartResult:
        log = names.key(source.log_table)
        snapshot = tick.tidemark.snapshot()
        version = log_data_version(snapshot, source)
        reported = _known(tick.context.instance, log, source, version)
        if snapshot.newest_arrival(name) + 1 == reported:
            return PartResult(f"Dagster knows all arrivals of '{name}'.")
        timeline = snapshot.read_timeline(name)
        new = timeline[reported:]
        if all(a.silent_since is not None for a in new):
            return PartResult(f"Only heartbeats are new in '{name}'.")
        metadata = {
            "made by": "an ingest outside Dagster",
            **run_metadata.arrivals_metadata(new, timeline),
            **run_metadata.count_rows(source, timeline),
            **run_metadata.log_table_metadata(tick.tidemark.tables, source),
        }
        materialization = dg.AssetMaterialization(
            log, metadata=metadata, tags=version_tags(version)
        )
        return PartResult(
            f"Reported {format_count(len(new), 'arrival')} of '{name}'.",
            [materialization, *check_arrivals(names, source, snapshot, new)],
        )

    return SensorPart(f"{name}_ingests", report)


def _known(
    instance: dg.DagsterInstance,
    log: dg.AssetKey,
    source: Source,
    version: dg.DataVersion | None,
) -> int:
    """Return how many arrivals the log had when it was last reported to Dagster.

    Return 0 if the report is about an earlier log, which has been dropped.

    Args:
        version: the data version of the existing log.
    """
    event = instance.get_latest_materialization_event(log)
    materialization = event.asset_materialization if event is not None else None
    if event is None or materialization is None or data_version(event) != version:
        return 0
    size = materialization.metadata.get(row_count(source.timeline_table))
    if isinstance(size, dg.IntMetadataValue):
        return size.value or 0
    return 0
