"""Kafka as a way in."""

from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.kafka.feed import KafkaFeed

__all__ = ["RECORD", "KafkaFeed"]
