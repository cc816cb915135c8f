"""Connectors, sinks and record formats: `from tidemark.connectors import FileConnector`."""

from tidemark_streaming.connector import (
    BYTES,
    CHUNK,
    CONTENT,
    DEAD,
    Arrival,
    Chunk,
    Connector,
    Decoder,
    Excerpt,
    ExplainsErrors,
    Ingestion,
    InWarehouse,
    Landed,
    Player,
    PollsRarely,
    Prefetching,
    Span,
    processing_time,
)
from tidemark_streaming.delta import CHANGE, DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.kafka import RECORD, KafkaConnector, KafkaSink
from tidemark_streaming.payloads import Avro, Json, Payload, Protobuf

__all__ = [
    "BYTES",
    "CHANGE",
    "CHUNK",
    "CONTENT",
    "DEAD",
    "RECORD",
    "Arrival",
    "Avro",
    "Chunk",
    "Connector",
    "Decoder",
    "DeltaConnector",
    "Excerpt",
    "ExplainsErrors",
    "FileConnector",
    "InWarehouse",
    "Ingestion",
    "Json",
    "KafkaConnector",
    "KafkaSink",
    "Landed",
    "Payload",
    "Player",
    "PollsRarely",
    "Prefetching",
    "Protobuf",
    "Span",
    "processing_time",
]
