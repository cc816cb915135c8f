"""Read Avro's binary encoding, with the writer's schema or resolved to a reader's schema.

A reader is a function that takes the bytes of a record and a position, and returns a value and the
position after it. The readers of a record are created once for its schemas, so reading a record
does not examine a schema. This module does not use the readers of fastavro, because these depend on
settings that are shared by the whole process, crash on deeply nested values, and create any number
of items that have no bytes.

Values have the types of `payload.decode_each`: a time is a `WrittenTime`, a decimal has all digits
that were written, and a UUID and an enumeration are texts.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

from tidemark.base.counts import format_count
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import UndecodableError, WrittenTime

MAX_ITEMS = 1_000_000
"""The maximum number of items of all arrays and maps of a record. Items may have no bytes, so a
short record can contain any number of them."""

_Schema = Any
"""A parsed schema of fastavro: a name, a dict, or a list for a union."""

_Named = Mapping[str, _Schema]
"""Named types, by name."""

_PRIMITIVES = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
)
_PROMOTIONS = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
_PROMOTE: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "double": float,
    "bytes": str.encode,
    "string": bytes.decode,
}
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_EPOCH = date(1970, 1, 1)
_MIDNIGHT = datetime.combine(_EPOCH, time())
_NANOS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_MAX_VARINT_BYTES = 10
_ONE_BYTE = tuple((value >> 1) ^ -(value & 1) for value in range(0x80))
"""The numbers that are written in one byte, by this byte."""


class ResolutionError(Exception):
    """A value can't be resolved to the reader's schema.

    Args:
        why: what is wrong, without the value, as a text that follows "the field 'x' ".
        path: the names of the fields that contain the value, the outermost first.
    """

    def __init__(self, why: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def within_field(self, name: str | None) -> "ResolutionError":
        """Return the error with the name of one more field that contains the value."""
        return ResolutionError(self.why, self.path if name is None else (name, *self.path))

    def __str__(self) -> str:
        subject = f"the field '{'.'.join(self.path)}'" if self.path else "the record"
        return f"{subject} {self.why}"


class Input:
    """The bytes of a record, with the number of items and levels that are read."""

    __slots__ = ("content", "depth", "items", "position")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0
        self.items = 0
        self.depth = 0

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            EOFError: the record has fewer bytes.
            ValueError: the size is negative.
        """
        start = self.position
        if size < 0:
            raise ValueError("a negative size")
        end = start + size
        if end > len(self.content):
            raise EOFError
        self.position = end
        return self.content[start:end]

    def read_number(self) -> int:
        """Return the next varint in zigzag."""
        content = self.content
        position = self.position
        try:
            byte = content[position]
            # Most numbers are sizes and branches of unions, which have one byte.
            if byte < 0x80:
                self.position = position + 1
                return _ONE_BYTE[byte]
            value = byte & 0x7F
            shift = 7
            while True:
                position += 1
                byte = content[position]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= 7 * _MAX_VARINT_BYTES:
                    raise ValueError("a number that is too long")
        except IndexError:
            raise EOFError from None
        self.position = position + 1
        return (value >> 1) ^ -(value & 1)

    def read_text(self) -> str:
        """Return the next text.

        Raises:
            EOFError: the record has fewer bytes.
            ValueError: the text is not UTF-8, or its size is negative.
        """
        size = self.read_number()
        start = self.position
        self.position = end = start + size
        content = self.content[start:end]
        if len(content) != size:
            raise ValueError("a negative size") if size < 0 else EOFError
        return content.decode()

    def add_items(self, count: int) -> None:
        """Count items that are about to be read.

        Raises:
            UndecodableError: the record has too many items.
        """
        self.items += count
        if self.items > MAX_ITEMS:
            raise UndecodableError(
                f"The record has more than {format_count(MAX_ITEMS, 'item')} in arrays and maps."
            )


Read = Callable[[Input], Any]


class Compiler:
    """Creates the readers of values.

    Args:
        writer_types: the named types of the writer's schema.
        reader_types: the named types of the reader's schema.
    """

    def __init__(self, writer_types: _Named, reader_types: _Named) -> None:
        self._writer_types = writer_types
        self._reader_types = reader_types
        self._known = dict[tuple[str, str | None], Read]()

    def create_reader(self, writer: _Schema, reader: _Schema | None) -> Read:
        """Return a function that reads a value.

        Args:
            writer: the schema with which the value was written.
            reader: the schema to which the value is resolved; None for the writer's.
        """
        writer = _resolve_name(writer, self._writer_types)
        if reader is not None:
            reader = _resolve_name(reader, self._reader_types)
        if isinstance(writer, list):
            return self._union_reader(writer, reader)
        if isinstance(reader, list):
            # The writer has no union: the branch is the same for all values.
            branch = self._find_branch(writer, reader)
            if branch is None:
                return _failing_reader(_describe_mismatch(writer, reader))
            return self.create_reader(writer, branch)
        if reader is not None and not self._can_resolve(writer, reader):
            return _failing_reader(_describe_mismatch(writer, reader))
        kind = _type_of(writer)
        if kind in ("record", "error"):
            return self._named_record_reader(writer, reader)
        if kind == "enum":
            return _enum_reader(writer, reader)
        if kind == "array":
            items = self.create_reader(writer["items"], None if reader is None else reader["items"])
            return _array_reader(items)
        if kind == "map":
            values = self.create_reader(
                writer["values"], None if reader is None else reader["values"]
            )
            return _map_reader(values)
        return _with_conversion(_scalar_reader(writer), writer, reader)

    def _named_record_reader(
        self, writer: Mapping[str, Any], reader: Mapping[str, Any] | None
    ) -> Read:
        """Return the reader of a record, which may contain records of its own type."""
        key = (writer["name"], None if reader is None else reader["name"])
        if key not in self._known:
            self._known[key] = lambda source: self._known[key](source)
            self._known[key] = self._record_reader(writer, reader)
        return self._known[key]

    def _record_reader(self, writer: Mapping[str, Any], reader: Mapping[str, Any] | None) -> Read:
        steps = list[tuple[str | None, Read]]()
        defaults = dict[str, Any]()
        if reader is None:
            steps = [
                (field["name"], self.create_reader(field["type"], None))
                for field in writer["fields"]
            ]
        else:
            reader_fields = {field["name"]: field for field in reader["fields"]}
            aliases = {a: field for field in reader["fields"] for a in field.get("aliases", ())}
            for field in writer["fields"]:
                target = reader_fields.get(field["name"]) or aliases.get(field["name"])
                if target is None or reader_fields.pop(target["name"], None) is None:
                    steps.append((None, self.create_reader(field["type"], None)))
                    continue
                steps.append((target["name"], self.create_reader(field["type"], target["type"])))
            for name, field in reader_fields.items():
                if "default" not in field:
                    return _failing_reader(f"lacks the field '{name}', which has no default")
                defaults[name] = self._convert_default(field["type"], field["default"])

        def read(source: Input) -> dict[str, Any]:
            source.depth += 1
            if source.depth > MAX_DEPTH:
                raise RecursionError
            record: dict[str, Any] = {}
            name = None
            try:
                for name, step in steps:
                    if name is None:
                        step(source)
                    else:
                        record[name] = step(source)
            except ResolutionError as error:
                raise error.within_field(name) from None
            record |= defaults
            source.depth -= 1
            return record

        return read

    def _convert_default(self, schema: _Schema, value: Any) -> Any:  # noqa: ANN401 (JSON)
        """Return a default value, which a schema has as JSON."""
        schema = _resolve_name(schema, self._reader_types)
        if isinstance(schema, list):
            # Since Avro 1.12, a default may be of any branch; before, of the first one.
            for branch in schema:
                if _is_json_of(_resolve_name(branch, self._reader_types), value):
                    return self._convert_default(branch, value)
            return value
        kind = _type_of(schema)
        if kind == "array":
            return [self._convert_default(schema["items"], part) for part in value]
        if kind == "map":
            return {
                name: self._convert_default(schema["values"], part) for name, part in value.items()
            }
        if kind in ("record", "error"):
            return {
                part["name"]: self._convert_default(
                    part["type"], value.get(part["name"], part.get("default"))
                )
                for part in schema["fields"]
            }
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        convert = _logical_converter(schema)
        if convert is None:
            return value
        return convert(value)

    def _union_reader(self, writer: Sequence[_Schema], reader: _Schema | None) -> Read:
        branches = [self.create_reader(branch, reader) for branch in writer]

        def read(source: Input) -> Any:  # noqa: ANN401 (of any type)
            index = source.read_number()
            if index < 0:
                raise ValueError("no such branch")
            return branches[index](source)

        return read

    def _find_branch(self, writer: _Schema, reader: Sequence[_Schema]) -> _Schema | None:
        """Return the branch of the reader's union for a value: one of the same type if there is
        one, else the first to which the value can be promoted."""
        fitting = [
            branch
            for branch in reader
            if self._can_resolve(writer, _resolve_name(branch, self._reader_types))
        ]
        exact = (
            branch
            for branch in fitting
            if _type_of(_resolve_name(branch, self._reader_types)) == _type_of(writer)
            and _full_name(_resolve_name(branch, self._reader_types)) == _full_name(writer)
        )
        return next(exact, fitting[0] if fitting else None)

    def _can_resolve(self, writer: _Schema, reader: _Schema) -> bool:
        """Return whether values of a type can be resolved to another one, regardless of the types
        within them."""
        written = _type_of(writer)
        target = _type_of(reader)
        if written != target:
            return target in _PROMOTIONS.get(written, ())
        if written == "fixed" and writer["size"] != reader["size"]:
            return False
        if written not in ("record", "error", "enum", "fixed"):
            return True
        aliases = {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
        names = {reader["name"].rpartition(".")[2], *aliases}
        return writer["name"].rpartition(".")[2] in names


def _resolve_name(schema: _Schema, named: _Named) -> _Schema:
    """Return the type that a name stands for."""
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        return named[schema]
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _resolve_name(schema["type"], named)
    if isinstance(schema, dict) and schema["type"] not in _PRIMITIVES and schema["type"] in named:
        return named[schema["type"]]
    return schema


def _type_of(schema: _Schema) -> str:
    if isinstance(schema, str):
        return schema
    return schema["type"]


def _full_name(schema: _Schema) -> str | None:
    if isinstance(schema, dict):
        return schema.get("name")
    return None


def _describe_schema(schema: _Schema) -> str:
    if isinstance(schema, list):
        return "a union"
    name = _full_name(schema)
    if name:
        return f"{_type_of(schema)} {name}"
    return _type_of(schema)


def _describe_mismatch(writer: _Schema, reader: _Schema) -> str:
    return (
        f"was written as {_describe_schema(writer)}, which does not fit {_describe_schema(reader)}"
    )


def _failing_reader(why: str) -> Read:
    def read(source: Input) -> NoReturn:
        raise ResolutionError(why)

    return read


def _enum_reader(writer: Mapping[str, Any], reader: Mapping[str, Any] | None) -> Read:
    symbols: Sequence[str] = writer["symbols"]
    valid_symbols = frozenset(symbols if reader is None else reader["symbols"])
    default = None if reader is None else reader.get("default")
    why = f"has a symbol that the enumeration {writer['name']} lacks, and no default replaces it"

    def read(source: Input) -> str:
        index = source.read_number()
        if not 0 <= index < len(symbols):
            raise ValueError("no such symbol")
        symbol = symbols[index]
        if symbol in valid_symbols:
            return symbol
        if default is None:
            raise ResolutionError(why)
        return default

    return read


def _block_counts(source: Input) -> Any:  # noqa: ANN401 (an iterator of numbers)
    """Yield the number of items in each block of an array or a map."""
    while count := source.read_number():
        if count < 0:
            # The size of the block in bytes, for programs that skip it.
            count = -count
            source.read_number()
        source.add_items(count)
        yield count


def _array_reader(read_item: Read) -> Read:
    def read(source: Input) -> list[Any]:
        source.depth += 1
        if source.depth > MAX_DEPTH:
            raise RecursionError
        items = list[Any]()
        for count in _block_counts(source):
            items += [read_item(source) for _ in range(count)]
        source.depth -= 1
        return items

    return read


def _map_reader(read_value: Read) -> Read:
    def read(source: Input) -> dict[str, Any]:
        source.depth += 1
        if source.depth > MAX_DEPTH:
            raise RecursionError
        items = dict[str, Any]()
        for count in _block_counts(source):
            for _ in range(count):
                name = source.read_text()
                items[name] = read_value(source)
        source.depth -= 1
        return items

    return read


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


def _scalar_reader(schema: _Schema) -> Read:
    kind = _type_of(schema)
    if kind != "fixed":
        return _SCALARS[kind]
    size = schema["size"]
    return lambda source: source.take_bytes(size)


def _with_conversion(read: Read, writer: _Schema, reader: _Schema | None) -> Read:
    """Return a reader that gives the value the type that the schemas declare."""
    target = writer if reader is None else reader
    promote: Callable[[Any], Any] | None = None
    if _type_of(writer) != _type_of(target):
        promote = _PROMOTE.get(_type_of(target))
        convert = _logical_converter(target)
    else:
        # The writer knows the meaning of its numbers.
        convert = _logical_converter(writer) or _logical_converter(target)
    for step in (promote, convert):
        if step is not None:
            read = _with_step(read, step)
    return read


def _with_step(read: Read, step: Callable[[Any], Any]) -> Read:
    return lambda source: step(read(source))


def _logical_converter(schema: _Schema) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a logical type; None if the schema declares none
    that has a meaning for its type."""
    if not isinstance(schema, dict):
        return None
    kind = schema["type"]
    logical = schema.get("logicalType", "")
    name, _, unit = logical.rpartition("-")
    if kind == "long" and name in ("timestamp", "local-timestamp") and unit in _NANOS:
        scale = _NANOS[unit]
        is_local = name != "timestamp"
        return lambda number: WrittenTime(number * scale, is_local)
    if (kind, logical) in (("int", "time-millis"), ("long", "time-micros")):
        return _time_of_day_converter(1_000 if unit == "millis" else 1)
    if (kind, logical) == ("int", "date"):
        return lambda days: _EPOCH + timedelta(days=days)
    if kind in ("bytes", "fixed") and logical == "decimal":
        scale = schema.get("scale", 0)
        return lambda data: Decimal(f"{int.from_bytes(data, 'big', signed=True)}e-{scale}")
    if (kind, logical) == ("string", "uuid"):
        return lambda text: str(UUID(text))
    if kind == "fixed" and logical == "uuid" and schema["size"] == 16:
        return lambda data: str(UUID(bytes=data))
    return None


def _time_of_day_converter(micros_per_unit: int) -> Callable[[int], time]:
    def to_time_of_day(number: int) -> time:
        clock = _MIDNIGHT + timedelta(microseconds=number * micros_per_unit)
        if clock.date() != _EPOCH:
            raise ValueError("not a time of day")
        return clock.time()

    return to_time_of_day


def _is_json_of(schema: _Schema, value: Any) -> bool:  # noqa: ANN401 (JSON)
    """Return whether a default value is one of a type."""
    kinds: dict[str, tuple[type, ...]] = {
        "null": (type(None),),
        "boolean": (bool,),
        "int": (int,),
        "long": (int,),
        "float": (int, float),
        "double": (int, float),
        "array": (list,),
        "map": (dict,),
        "record": (dict,),
    }
    json_types = kinds.get(_type_of(schema), (str,))
    return isinstance(value, json_types) and (bool in json_types or not isinstance(value, bool))
