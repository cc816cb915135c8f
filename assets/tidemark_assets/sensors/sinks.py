"""Report the publication of an asset to Kafka on the asset's page.

A tick reads the progress from the topic, without the engine. It reports an observation of the
asset, immediately if the topic falls behind or catches up, otherwise every five minutes. A topic
that is behind for too long is a finding (`tidemark_streaming.findings`), which the check
`no_findings` shows.
"""

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.define.definition import Definition
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.metadata.run_metadata import as_timestamp
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick, report_state
from tidemark_streaming.sink.writer import sink_status


def sink_reporter(transform: Definition, names: Names = PLAIN) -> SensorPart:
    """Return the reporter of how much of an asset is published to its topic."""

    def report(tick: Tick) -> PartResult:
        status = sink_status(tick.tidemark.tables, transform)
        is_behind = status.behind > 0
        progress = "up to date"
        if is_behind:
            progress = f"{format_count(status.behind, 'version')} behind"
        message = f"The topic is {progress}."
        observation = dg.AssetObservation(
            names.key(transform.published_table),
            description=message,
            metadata={
                "publishes to": str(transform.sink),
                "topic": status.topic,
                "published version": status.version,
                "versions behind": status.behind,
                "last transaction": as_timestamp(status.at),
                "last published run": status.run or "none",
            },
        )
        return report_state(tick.memory, is_behind, message, [observation])

    return SensorPart(f"{transform.name}_sink", report)
