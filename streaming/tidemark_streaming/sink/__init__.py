"""Sink: publish the changes of an asset's published table to a Kafka topic, exactly once."""

from tidemark_streaming.sink.writer import PublishResult, SinkWriter

__all__ = ["PublishResult", "SinkWriter"]
