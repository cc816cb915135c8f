"""Values in Avro and Protobuf for tests."""

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMPS


def avro(schema: dict[str, Any], value: object, number: int | None = None) -> bytes:
    """Encode a value in Avro, with the schema ID in front if a number is given."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    head = b"" if number is None else struct.pack(">bI", 0, number)
    return head + stream.getvalue()


def describe(file: str, path: Path) -> Path:
    """Write the descriptor set of a Protobuf file, given as the text of its descriptor.

    The result equals that of `protoc --include_imports --descriptor_set_out`. The file imports
    timestamps.
    """
    imported = FileDescriptorProto()
    TIMESTAMPS.CopyToProto(imported)
    files = [imported, text_format.Parse(file, FileDescriptorProto())]
    path.write_bytes(FileDescriptorSet(file=files).SerializeToString())
    return path


def message(descriptors: Path, name: str) -> Any:  # noqa: ANN401 (a class of messages)
    """Return the class of a message."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))
