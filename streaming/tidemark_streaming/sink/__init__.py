"""Sink: publish the changes of an asset's published table to a Kafka topic, exactly once."""

from tidemark_streaming.sink.outbox import Outbox, PublishResult

__all__ = ["Outbox", "PublishResult"]
