"""Report a Kafka source's consumer lag on the page of its log.

The sensor `<source>_lag` queries the brokers and reports an observation of the log, at most once in
five minutes. It reports at once if the brokers' answer changes: they answer, don't answer, or
refuse access. It also reports at once if records were deleted before they were ingested, which
stops the next ingest.
"""

import json
import time

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.base.errors import TidemarkError
from tidemark.base.instants import is_wait_over
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.sensors.arrivals import TICK_SECONDS
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector, losses

REPORT_EVERY = 300.0
"""Seconds between two reports while the state of the brokers does not change."""

LOST = "lost records"

PATIENCE = 5.0
"""Seconds within which the brokers must respond."""


def lags(ingestion: Ingestion, names: Names = PLAIN) -> dg.Definitions:
    """Create the sensor that reports how far the log of a Kafka source is behind its topics."""
    source = ingestion.source
    name = source.name

    @dg.sensor(
        name=names.own(f"{name}_lag"),
        required_resource_keys=names.needs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports the Kafka consumer lag of {name}. It launches nothing.",
    )
    def sensor(context: SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tidemark = names.tidemark(context)
        connector = ingestion.connector(tidemark.landing(source))
        assert isinstance(connector, KafkaConnector)
        try:
            timeline = reversed(tidemark.snapshot().timeline(name))
            stands = next((a.position for a in timeline if position.parse(a.position)), None)
        except TidemarkError as error:
            return dg.SkipReason(str(error))
        found = _observe(connector, stands)
        before, now = json.loads(context.cursor or '{"at": 0}'), time.time()
        summary = ", ".join(f"{key}: {value}" for key, value in found.items())
        stands_so = {"brokers": found["brokers"], "lost": LOST in found}
        same = stands_so.items() <= before.items()
        if same and not is_wait_over(REPORT_EVERY, before["at"], now):
            return dg.SkipReason(summary)
        memory = json.dumps({"at": now, **stands_so})
        return dg.SensorResult(
            skip_reason=summary,
            cursor=memory,
            asset_events=[dg.AssetObservation(names.key(source.log_table), metadata=found)],
        )

    return dg.Definitions(sensors=[sensor])


def _observe(connector: KafkaConnector, stands: str | None) -> dict[str, str | int]:
    try:
        lag = connector.lag(stands, PATIENCE)
    except TidemarkError as error:
        return {"brokers": "do not respond" if error.retriable else "refuse", "why": str(error)}
    found: dict[str, str | int] = {
        "brokers": "respond",
        "lag in records": sum(lag.waiting.values()),
        "lost offsets": sum(loss.offsets for loss in lag.lost),
        **{f"{t}-{n} lag": count for (t, n), count in sorted(lag.waiting.items())},
    }
    if lag.lost:
        found[LOST] = losses.error_message(connector.source.name, lag.lost)
    return found
