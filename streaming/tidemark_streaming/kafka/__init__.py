"""Kafka as a way in."""

from tidemark_streaming.kafka.feed import RECORD, KafkaFeed

__all__ = ["RECORD", "KafkaFeed"]
