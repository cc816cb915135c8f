"""Kafka as a source connector and as a sink."""

from tidemark_streaming.kafka.connector import KafkaConnector
from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.kafka.topic import KafkaSink

__all__ = ["RECORD", "KafkaConnector", "KafkaSink"]
