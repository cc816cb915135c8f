"""Kafka as a source connector and as a sink."""

from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.kafka.feed import KafkaFeed
from tidemark_streaming.kafka.topic import KafkaTopic

__all__ = ["RECORD", "KafkaFeed", "KafkaTopic"]
