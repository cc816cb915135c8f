"""Sink: publish the changes of an asset's published table to a Kafka topic, exactly once."""

from tidemark_streaming.outbox.outbox import Emitted, Outbox

__all__ = ["Emitted", "Outbox"]
