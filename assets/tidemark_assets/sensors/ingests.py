"""Report arrivals that were ingested outside Dagster.

An ingest in Dagster reports itself. An ingest on the command line adds rows to the timeline: the
sensor `<source>_ingests` finds arrivals that Dagster does not know and reports the log as
materialized. Otherwise the log would look as if it had never been filled.
"""

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.base.counts import format_count
from tidemark.define.source import Source
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks import clock_checks, dead_letter_check
from tidemark_assets.metadata import run_metadata
from tidemark_assets.metadata.provenance import data_version, log_data_version, version_tags
from tidemark_assets.metadata.side_tables import row_count
from tidemark_assets.sensors.arrivals import TICK_SECONDS


def ingests(source: Source, names: Names = PLAIN) -> dg.Definitions:
    """Create the sensor that reports a source's arrivals that Dagster did not ingest."""
    name = source.name

    @dg.sensor(
        name=names.own(f"{name}_ingests"),
        required_resource_keys=names.needs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Reports arrivals that were ingested into the event log of {name} outside Dagster. "
            "It launches nothing."
        ),
    )
    def sensor(context: SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tidemark = names.tidemark(context)
        log = names.key(source.log_table)
        snapshot = tidemark.snapshot()
        version = log_data_version(snapshot, source)
        known = _known(context.instance, log, source, version)
        if snapshot.newest_arrival(name) + 1 == known:
            return dg.SkipReason(f"Dagster knows all arrivals of '{name}'.")
        timeline = snapshot.timeline(name)
        new = timeline[known:]
        facts = {
            "made by": "an ingest outside Dagster",
            **run_metadata.arrivals_metadata(new, timeline),
        }
        materialization = dg.AssetMaterialization(
            log,
            metadata={**facts, **run_metadata.count_rows(source, timeline)},
            tags=version_tags(version),
        )
        return dg.SensorResult(
            skip_reason=f"Reported {format_count(len(new), 'arrival')} of '{name}'.",
            asset_events=[
                materialization,
                dead_letter_check.evaluation(names, source, new),
                clock_checks.evaluation(names, source, snapshot, new),
            ],
        )

    return dg.Definitions(sensors=[sensor])


def _known(
    instance: dg.DagsterInstance,
    log: dg.AssetKey,
    source: Source,
    version: dg.DataVersion | None,
) -> int:
    """Return how many arrivals the log had at its last report to Dagster; 0 for another log.

    Args:
        version: the data version of the existing log.
    """
    event = instance.get_latest_materialization_event(log)
    materialization = event.asset_materialization if event is not None else None
    if event is None or materialization is None or data_version(event) != version:
        return 0
    size = materialization.metadata.get(row_count(source.timeline_table))
    return size.value or 0 if isinstance(size, dg.IntMetadataValue) else 0
