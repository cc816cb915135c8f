"""Read the values of Avro's types that contain no other values."""

import struct

from tidemark_streaming.payloads.avro_input import Input, Read
from tidemark_streaming.payloads.avro_types import AvroSchema, type_of

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def _read_boolean(source: Input) -> bool:
    value = source.take_bytes(1)[0]
    if value > 1:
        raise ValueError("not a boolean")
    return value == 1


def _read_bytes(source: Input) -> bytes:
    return source.take_bytes(source.read_number())


def _integer_reader(bits: int) -> Read:
    most = 1 << (bits - 1)

    def read(source: Input) -> int:
        number = source.read_number()
        if not -most <= number < most:
            raise ValueError("a number that is too large")
        return number

    return read


_SCALARS: dict[str, Read] = {
    "null": lambda source: None,
    "boolean": _read_boolean,
    "int": _integer_reader(32),
    "long": _integer_reader(64),
    "float": lambda source: _FLOAT.unpack(source.take_bytes(4))[0],
    "double": lambda source: _DOUBLE.unpack(source.take_bytes(8))[0],
    "bytes": _read_bytes,
    "string": Input.read_text,
}


def scalar_reader(schema: AvroSchema) -> Read:
    """Return the function that reads a value of a type, without the conversion of logical types."""
    kind = type_of(schema)
    if kind != "fixed":
        return _SCALARS[kind]
    size = schema["size"]
    return lambda source: source.take_bytes(size)
