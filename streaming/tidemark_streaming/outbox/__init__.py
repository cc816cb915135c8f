"""The way out: what is published in an asset's table goes to a Kafka topic, exactly once."""

from tidemark_streaming.outbox.outbox import Emitted, Outbox

__all__ = ["Emitted", "Outbox"]
