"""Report a Kafka source's consumer lag on the page of its log.

A tick queries the brokers. It reports an observation of the log every five minutes, and immediately
if one of two facts changes: how the brokers respond (they answer, don't answer, or refuse access),
or whether records were deleted before they were ingested. Such a loss stops the next ingest.
"""

import dagster as dg

from tidemark.base.errors import TidemarkError
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick, report_state
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector, losses

_LOST = "lost records"

PATIENCE = 5.0
"""Seconds within which the brokers must respond."""


def lag_reporter(ingestion: Ingestion, names: Names = PLAIN) -> SensorPart:
    """Return the reporter of a Kafka source's lag: the records that are not in the log yet."""
    source = ingestion.source
    name = source.name

    def report(tick: Tick) -> PartResult:
        connector = ingestion.connector(tick.tidemark.landing(source))
        assert isinstance(connector, KafkaConnector)
        timeline = reversed(tick.tidemark.snapshot().read_timeline(name))
        newest = next((a.position for a in timeline if position.parse_position(a.position)), None)
        facts = _observe(connector, newest)
        summary = ", ".join(f"{key}: {value}" for key, value in facts.items())
        observed = dg.AssetObservation(names.key(source.log_table), metadata=facts)
        return report_state(tick.memory, [facts["brokers"], _LOST in facts], summary, [observed])

    return SensorPart(f"{name}_lag", report)


def _observe(connector: KafkaConnector, newest: str | None) -> dict[str, str | int]:
    try:
        lag = connector.measure_lag(newest, PATIENCE)
    except TidemarkError as error:
        return {"brokers": "do not respond" if error.retriable else "refuse", "why": str(error)}
    facts: dict[str, str | int] = {
        "brokers": "respond",
        "lag in records": sum(lag.waiting.values()),
        "lost offsets": sum(loss.offsets for loss in lag.lost),
        **{f"{t}-{n} lag": count for (t, n), count in sorted(lag.waiting.items())},
    }
    if lag.lost:
        facts[_LOST] = losses.error_message(connector.source.name, lag.lost)
    return facts
