"""The sensors and jobs that keep a domain's assets up to date."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from tidemark.base.instants import duration
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks.definition_check import current_check
from tidemark_assets.checks.freshness_check import fresh_check
from tidemark_assets.checks.stream_checks import stream_check
from tidemark_assets.jobs import corrections, nightly, rebuilds, replays
from tidemark_assets.sensors import arrivals, streams
from tidemark_assets.sensors.frame import Reporter, reporting_sensor
from tidemark_assets.sensors.ingests import ingests_reporter
from tidemark_assets.sensors.lags import lag_reporter
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_assets.sensors.sinks import sink_check, sink_reporter
from tidemark_assets.tables.windows import DagsterOptions
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.kafka import KafkaConnector, KafkaSink


def automation(
    domain: str, found: Domains, show: DagsterOptions, names: Names = PLAIN
) -> Iterator[dg.Definitions]:
    """Yield the sensors and jobs of one domain, named after it or its sources."""
    reporters = list[Reporter]()
    for ingestion in found.ingestions.values():
        yield arrivals.landing(ingestion, names)
        reporters.append(ingests_reporter(ingestion.source, names))
        if isinstance(ingestion.connector(Path(ingestion.source.name)), KafkaConnector):
            reporters.append(lag_reporter(ingestion, names))
    if found.transforms:
        transforms, partitions = found.transforms, show.partitions_of
        within = duration(show.fresh_within)
        # Assets that are computed from the log; their roll-ups follow them.
        counted = {name: t for name, t in transforms.items() if t.follows is None}
        yield arrivals.arrivals(domain, transforms, partitions, names)
        reporters.append(partitions_reporter(transforms, partitions, within, names))
        yield streams.streams(domain, transforms, names)
        yield nightly.nightly(domain, counted, partitions, names)
        yield corrections.corrections(domain, counted, partitions, names)
        yield rebuilds.rebuilds(domain, counted, names)
        yield replays.replays(domain, counted, names)
        for transform in transforms.values():
            checks = [
                fresh_check(transform, within, names),
                stream_check(transform, names),
                nightly.parity_check(transform, partitions(transform.name), names),
            ]
            if transform.follows is None:
                checks.append(current_check(transform, names))
            if isinstance(transform.sink, KafkaSink):
                checks.append(sink_check(transform, names))
                reporters.append(sink_reporter(transform, names))
            yield dg.Definitions(asset_checks=checks)
    if reporters:
        description = (
            "Reports ingests, runs and builds of streams and the command line: ingested arrivals, "
            "partitions when they close and when late events change them, and the state of Kafka "
            "topics."
        )
        yield dg.Definitions(
            sensors=[reporting_sensor(names, f"{domain}_reports", description, reporters)]
        )
