"""What came into a log by other ways than Dagster, told to it.

An ingest of Dagster reports itself. One of the command line leaves new rows in the timeline: the
sensor `<source>_ingests` finds arrivals of which Dagster does not know, and reports log and
timeline as materialized, so that they don't look as if nobody had ever filled them.
"""

import dagster as dg
from dagster import ResourceParam, SensorEvaluationContext

from tidemark.define.source import Source
from tidemark_assets import report, undecoded
from tidemark_assets.arrivals import EVERY
from tidemark_assets.resources import TidemarkResource


def ingests(source: Source) -> dg.Definitions:
    """Reports the arrivals of a source that Dagster did not bring in itself."""
    name = source.name

    @dg.sensor(
        name=f"{name}_ingests",
        minimum_interval_seconds=EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports what other ways than Dagster brought into the log of {name}. It "
        "launches nothing.",
    )
    def sensor(
        context: SensorEvaluationContext, tidemark: ResourceParam[TidemarkResource]
    ) -> dg.SkipReason:
        glance, known = tidemark.glance(), _known(context.instance, source)
        if glance.newest_arrival(name) + 1 == known:
            return dg.SkipReason(f"Dagster knows all arrivals of '{name}'.")
        timeline = glance.timeline(name)
        # Where Dagster knows more than there is, the log is another one.
        new = timeline[known:] or timeline
        facts = {"made by": "an ingest from outside", **report.brought(new, timeline)}
        for table, size in report.sizes(source, timeline).items():
            metadata = {**facts, report.ALL_ROWS: size}
            context.instance.report_runless_asset_event(
                dg.AssetMaterialization(table, metadata=metadata)
            )
        context.instance.report_runless_asset_event(undecoded.evaluation(source, new))
        return dg.SkipReason(f"{len(new)} arrivals of '{name}' reported.")

    return dg.Definitions(sensors=[sensor])


def _known(instance: dg.DagsterInstance, source: Source) -> int:
    """How many arrivals the timeline had when Dagster last heard of it."""
    event = instance.get_latest_materialization_event(dg.AssetKey(source.timeline_table))
    said = event.asset_materialization if event is not None else None
    size = said.metadata.get(report.ALL_ROWS) if said is not None else None
    return size.value or 0 if isinstance(size, dg.IntMetadataValue) else 0
