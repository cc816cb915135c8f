"""Kafka as a way in, and as a way out."""

from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.kafka.feed import KafkaFeed
from tidemark_streaming.kafka.topic import KafkaTopic

__all__ = ["RECORD", "KafkaFeed", "KafkaTopic"]
