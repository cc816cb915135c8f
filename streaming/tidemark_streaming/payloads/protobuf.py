"""Decode Protobuf messages, with a descriptor set as `protoc --descriptor_set_out` writes it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Event,
    UndecodableError,
    WrittenTime,
    decode_each,
)
from tidemark_streaming.payloads.registry import split_id
from tidemark_streaming.payloads.time_rules import TimeRules

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {descriptor.full_name for descriptor in WRAPPERS.message_types_by_name.values()}
_NO_INDEX = "The record does not specify which message of its schema it is."


@checked_class
@dataclass(frozen=True)
class Protobuf:
    """Protobuf, one message in each value.

    The message's fields are the columns with the same names. A column without a field is null. An
    unset field is null, too, if Protobuf distinguishes it from a field with the default value. An
    enumeration becomes the name of its value (or the number as text, if the descriptors lack the
    value), a `google.protobuf.Timestamp` becomes an instant, a wrapper such as
    `google.protobuf.DoubleValue` becomes its value or null, and another message becomes a struct.

    Args:
        descriptors: a file that `protoc --include_imports --descriptor_set_out` wrote.
        message: the full name of the message, as in `shop.Order`.
        by_id: true if each value begins with the ID of its schema and the index of the message in
            that schema, as Confluent's serializers write them. The ID is ignored, because
            `descriptors` determines the schema. A record of another message is a dead letter.
        index: the message's index in the producers' schema, if it differs from its index in its
            file of `descriptors`: `[1]` is the second message, `[1, 0]` the first one in it.
        finer: `truncate` to drop the digits of times beyond microseconds; without it, a record with
            such digits is a dead letter.

    Raises:
        DefinitionError: the file can't be read, is not a descriptor set, or lacks the message.
    """

    descriptors: str | Path
    message: str
    by_id: bool = False
    index: Sequence[int] | None = None
    finer: str | None = None
    _class: type[Message] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_class", _message_class(Path(self.descriptors), self.message))
        _ = self._time_rules

    def decode_values(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        names = [name for name, kind in columns.items() if kind is not None]
        return decode_each(
            values, columns, lambda value: self._decode_event(value, names), self._time_rules
        )

    @property
    def _time_rules(self) -> TimeRules:
        return TimeRules(None, self.finer, "Protobuf(…)")

    def _decode_event(self, value: bytes, names: Sequence[str]) -> Event:
        """Return the fields of a record that have these names.

        Raises:
            UndecodableError: the record can't be decoded, or is another message.
        """
        content = self._strip_index(split_id(value)[1]) if self.by_id else value
        try:
            return _field_values(self._class.FromString(content), names)
        except (DecodeError, ValueError, OverflowError):
            hint = "" if self.by_id else " If records begin with a schema ID, set by_id=True."
            raise UndecodableError(f"The record is not a message '{self.message}'.{hint}") from None

    def _strip_index(self, content: bytes) -> bytes:
        """Return the bytes after the message's index in its schema.

        Raises:
            UndecodableError: the record is another message of its schema, or has no index.
        """
        index, start = _read_index(content)
        descriptor = self._class.DESCRIPTOR
        expected = _index_of(descriptor) if self.index is None else list(self.index)
        # Serializers differ in whether the entries of maps are messages of their own.
        if index == expected or (self.index is None and index == _index_of(descriptor, maps=False)):
            return content[start:]
        other = _message_at(descriptor.file, index)
        # If the producers' schema has another order, the name would be that of another message.
        name = "" if other is None or self.index is not None else f", '{other.full_name}'"
        raise UndecodableError(
            f"The record is message {index} of its schema{name}, but '{self.message}' is message "
            f"{expected}. If that differs in the producers' schema, set `index` of Protobuf(…)."
        )


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


def _read_index(content: bytes) -> tuple[list[int], int]:
    """Return the message's index in its schema, and the position after it.

    The index has a number for the message and one for each message that contains it. It is a
    varint with the count, and then that many varints, all in zigzag; a single 0 stands for `[0]`.
    """
    count, position = _read_varint(content, 0)
    if count == 0:
        return [0], position
    if count & 1 or count >> 1 > MAX_DEPTH:
        raise UndecodableError(_NO_INDEX)
    index = list[int]()
    for _ in range(count >> 1):
        number, position = _read_varint(content, position)
        if number & 1:
            raise UndecodableError(_NO_INDEX)
        index.append(number >> 1)
    return index, position


def _index_of(descriptor: Any, *, maps: bool = True) -> list[int]:  # noqa: ANN401 (of two classes)
    """Return the index of a message in its file.

    Args:
        maps: whether the entries of maps count as messages.
    """
    index = list[int]()
    while descriptor is not None:
        container = descriptor.containing_type
        if container is None:
            siblings = descriptor.file.message_types_by_name.values()
        else:
            siblings = container.nested_types
        names = list[str]()
        for sibling in siblings:
            if maps or not sibling.GetOptions().map_entry:
                names.append(sibling.full_name)
        index.insert(0, names.index(descriptor.full_name))
        descriptor = container
    return index


def _message_at(file: Any, index: Sequence[int]) -> Any:  # noqa: ANN401 (as above)
    """Return the message with an index in a file; None if there is none."""
    siblings = list(file.message_types_by_name.values())
    message = None
    for number in index:
        if number >= len(siblings):
            return None
        message = siblings[number]
        siblings = list(message.nested_types)
    return message


def _read_varint(content: bytes, start: int) -> tuple[int, int]:
    """Return a varint, and the position after it."""
    value = 0
    for n, byte in enumerate(content[start : start + 10]):
        value |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return value, start + n + 1
    raise UndecodableError(_NO_INDEX)


def _field_values(message: Message, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the values of a message's fields; of those with these names, if names are given."""
    fields = message.DESCRIPTOR.fields
    values = dict[str, Any]()
    for member in fields:
        if names is None or member.name in names:
            values[member.name] = _field_value(message, member)
    return values


def _field_value(message: Message, field: Any) -> Any:  # noqa: ANN401 (a descriptor, of two classes)
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
        enum_value = field.enum_type.values_by_number.get(value)
        if enum_value is None:
            return str(value)
        return enum_value.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return WrittenTime(value.seconds * 1_000_000_000 + value.nanos)
    if name in _WRAPPERS:
        return value.value
    return _field_values(value)
