"""Decode Protobuf messages, with a descriptor set as `protoc --descriptor_set_out` writes it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Event,
    UndecodableError,
    decode_each,
)
from tidemark_streaming.payloads.registry import split_id

_TIMESTAMP = "google.protobuf.Timestamp"


@checked_class
@dataclass(frozen=True)
class Protobuf:
    """Protobuf, one message in each value.

    The message's fields are the columns with the same names. A column without a field is null. An
    unset field is null, too, if Protobuf distinguishes it from a field with the default value. An
    enumeration becomes the name of its value (or the number as text, if the descriptors lack the
    value), a `google.protobuf.Timestamp` becomes an instant, and a message becomes a struct.

    Args:
        descriptors: a file that `protoc --include_imports --descriptor_set_out` wrote.
        message: the full name of the message, as in `shop.Order`.
        by_id: true if each value begins with the ID of its schema and the index of the message in
            that schema, as Confluent's serializers write them. Both are ignored, because
            `descriptors` and `message` determine the schema.

    Raises:
        DefinitionError: the file can't be read, is not a descriptor set, or lacks the message.
    """

    descriptors: str | Path
    message: str
    by_id: bool = False
    _class: type[Message] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_class", _message_class(Path(self.descriptors), self.message))

    def decode(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        return decode_each(values, columns, self.event)

    def event(self, value: bytes) -> Event:
        content = _skip_message_index(split_id(value)[1]) if self.by_id else value
        try:
            return _fields(self._class.FromString(content))
        except (DecodeError, ValueError, OverflowError):
            hint = "" if self.by_id else " If records begin with a schema ID, set by_id=True."
            raise UndecodableError(f"The record is not a message '{self.message}'.{hint}") from None


def _message_class(path: Path, name: str) -> type[Message]:
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(path.read_bytes())
        for file in files.file:
            pool.Add(file)
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise DefinitionError(f"The descriptor set '{path}' can't be read: {why}.") from None
    except KeyError:
        raise DefinitionError(
            f"The descriptor set '{path}' has no message '{name}': `message` must be a full name, "
            "such as 'shop.Order'."
        ) from None
    except (DecodeError, TypeError):
        raise DefinitionError(
            f"'{path}' is not a complete descriptor set: write it with `protoc --include_imports "
            "--descriptor_set_out`."
        ) from None


def _skip_message_index(content: bytes) -> bytes:
    """Return the bytes after the message's index in its schema. The index is a varint with a count,
    and then that many varints; a single 0 stands for the first message."""
    count, at = _read_varint(content, 0)
    for _ in range(count >> 1):
        _, at = _read_varint(content, at)
    return content[at:]


def _read_varint(content: bytes, start: int) -> tuple[int, int]:
    """Return a varint, and the position after it."""
    value = 0
    for n, byte in enumerate(content[start : start + 10]):
        value |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return value, start + n + 1
    raise UndecodableError("The record does not specify which message of its schema it is.")


def _fields(message: Message) -> dict[str, Any]:
    return {one.name: _value(message, one) for one in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:  # noqa: ANN401 (a descriptor, of two classes)
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {k: _single_value(value[k], inner) for k in value}
    if field.is_repeated:
        return [_single_value(v, field) for v in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single_value(value, field)


def _single_value(value: Any, field: Any) -> Any:  # noqa: ANN401 (as above)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        if value.nanos % 1000:
            raise UndecodableError(
                f"The field '{field.name}' has a time with more precision than microseconds."
            )
        return Timestamp(seconds=value.seconds, nanos=value.nanos).ToDatetime()
    return _fields(value)
