"""Record formats of files and topics: JSON, Avro and Protobuf.

CSV, which only files use, is in `csv_records`.
"""

from tidemark_streaming.payloads.avro import Avro
from tidemark_streaming.payloads.json_records import Json
from tidemark_streaming.payloads.payload import Payload
from tidemark_streaming.payloads.protobuf import Protobuf

__all__ = ["Avro", "Json", "Payload", "Protobuf"]
