"""What waits in Kafka for a source, on the page of its log.

The sensor `<source>_lag` asks the brokers, and reports an observation of the log: at most one in
five minutes, and at once when the brokers begin or cease to answer.
"""

import json
import time

import dagster as dg
from dagster import ResourceParam, SensorEvaluationContext

from tidemark.base.errors import TidemarkError
from tidemark_assets.arrivals import EVERY
from tidemark_assets.resources import TidemarkResource
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaFeed, position

REPORT_EVERY = 300.0
"""Seconds between two reports while the brokers answer, or while they don't."""

PATIENCE = 5.0
"""Seconds that the brokers have to answer."""


def lags(inlet: Inlet) -> dg.Definitions:
    """Reports how far the log of a Kafka source is behind its topics."""
    source = inlet.source
    name = source.name

    @dg.sensor(
        name=f"{name}_lag",
        minimum_interval_seconds=EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports what waits in Kafka for {name}. It launches nothing.",
    )
    def sensor(
        context: SensorEvaluationContext, tidemark: ResourceParam[TidemarkResource]
    ) -> dg.SensorResult | dg.SkipReason:
        feed = inlet.feed(tidemark.landing(source))
        assert isinstance(feed, KafkaFeed)
        try:
            timeline = reversed(tidemark.glance().timeline(name))
            stands = next((a.position for a in timeline if position.read(a.position)), None)
            found = _observed(feed, stands)
        except TidemarkError as error:
            found = {"brokers": "don't answer", "why": str(error)}
        before, now = json.loads(context.cursor or '{"at": 0, "brokers": ""}'), time.time()
        said = ", ".join(f"{key}: {value}" for key, value in found.items())
        if found["brokers"] == before["brokers"] and now - before["at"] < REPORT_EVERY:
            return dg.SkipReason(said)
        context.instance.report_runless_asset_event(
            dg.AssetObservation(source.log_table, metadata=found)
        )
        memory = json.dumps({"at": now, "brokers": found["brokers"]})
        return dg.SensorResult(skip_reason=said, cursor=memory)

    return dg.Definitions(sensors=[sensor])


def _observed(feed: KafkaFeed, stands: str | None) -> dict[str, str | int]:
    waiting = feed.waiting(stands, PATIENCE)
    partitions = {f"{t}-{n} waiting": count for (t, n), count in sorted(waiting.items())}
    return {"brokers": "answer", "records waiting": sum(waiting.values()), **partitions}
