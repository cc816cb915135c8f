"""Formats in which records carry their events: JSON, Avro and Protobuf."""

from tidemark_streaming.payloads.avro import Avro
from tidemark_streaming.payloads.payload import InMemory, Payload
from tidemark_streaming.payloads.protobuf import Protobuf
from tidemark_streaming.payloads.text import Json

__all__ = ["Avro", "InMemory", "Json", "Payload", "Protobuf"]
