"""Record formats: JSON, Avro and Protobuf."""

from tidemark_streaming.payloads.avro import Avro
from tidemark_streaming.payloads.json_records import Json
from tidemark_streaming.payloads.payload import Payload
from tidemark_streaming.payloads.protobuf import Protobuf

__all__ = ["Avro", "Json", "Payload", "Protobuf"]
