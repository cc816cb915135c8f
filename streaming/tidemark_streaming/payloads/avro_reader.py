"""Read Avro's binary encoding, with the writer's schema or resolved to a reader's schema.

A reader is a function that takes the `Input` of a record, and returns the next value. The readers
of a record are created once for its schemas, so reading a record does not examine a schema. This
module does not use the readers of fastavro, because these depend on
settings that are shared by the whole process, crash on deeply nested values, and create any number
of items that have no bytes.

Values have the types of `payload.decode_each`: a time is a `WrittenTime`, a decimal has all digits
that were written, and a UUID and an enumeration are texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tidemark_streaming.payloads.avro_conversions import logical_converter, with_conversion
from tidemark_streaming.payloads.avro_input import Input, Read
from tidemark_streaming.payloads.avro_scalars import scalar_reader
from tidemark_streaming.payloads.avro_types import (
    PROMOTIONS,
    AvroSchema,
    NamedTypes,
    describe_mismatch,
    full_name,
    is_json_of,
    resolve_name,
    type_of,
)
from tidemark_streaming.payloads.nested import MAX_DEPTH


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


class Compiler:
    """Creates the readers of values.

    Args:
        writer_types: the named types of the writer's schema.
        reader_types: the named types of the reader's schema.
    """

    def __init__(self, writer_types: NamedTypes, reader_types: NamedTypes) -> None:
        self._writer_types = writer_types
        self._reader_types = reader_types
        self._known = dict[tuple[str, str | None], Read]()

    def create_reader(self, writer: AvroSchema, reader: AvroSchema | None) -> Read:
        """Return a function that reads a value.

        Args:
            writer: the schema with which the value was written.
            reader: the schema to which the value is resolved; None for the writer's.
        """
        writer = resolve_name(writer, self._writer_types)
        if reader is not None:
            reader = resolve_name(reader, self._reader_types)
        if isinstance(writer, list):
            return self._union_reader(writer, reader)
        if isinstance(reader, list):
            # The writer has no union: the branch is the same for all values.
            branch = self._find_branch(writer, reader)
            if branch is None:
                return _failing_reader(describe_mismatch(writer, reader))
            return self.create_reader(writer, branch)
        if reader is not None and not self._can_resolve(writer, reader):
            return _failing_reader(describe_mismatch(writer, reader))
        kind = type_of(writer)
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
        return with_conversion(scalar_reader(writer), writer, reader)

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
            for field in writer["fields"]:
                steps.append((field["name"], self.create_reader(field["type"], None)))
        else:
            reader_fields = {field["name"]: field for field in reader["fields"]}
            aliases = dict[str, Any]()
            for field in reader["fields"]:
                aliases.update(dict.fromkeys(field.get("aliases", ()), field))
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

    def _convert_default(self, schema: AvroSchema, value: Any) -> Any:  # noqa: ANN401 (JSON)
        """Return a default value, which a schema has as JSON."""
        schema = resolve_name(schema, self._reader_types)
        if isinstance(schema, list):
            # Since Avro 1.12, a default may be of any branch; before, of the first one.
            for branch in schema:
                if is_json_of(resolve_name(branch, self._reader_types), value):
                    return self._convert_default(branch, value)
            return value
        kind = type_of(schema)
        if kind == "array":
            return [self._convert_default(schema["items"], part) for part in value]
        if kind == "map":
            values = schema["values"]
            return {name: self._convert_default(values, part) for name, part in value.items()}
        if kind in ("record", "error"):
            record = dict[str, Any]()
            for field in schema["fields"]:
                part = value.get(field["name"], field.get("default"))
                record[field["name"]] = self._convert_default(field["type"], part)
            return record
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        convert = logical_converter(schema)
        if convert is None:
            return value
        return convert(value)

    def _union_reader(self, writer: Sequence[AvroSchema], reader: AvroSchema | None) -> Read:
        branches = [self.create_reader(branch, reader) for branch in writer]

        def read(source: Input) -> Any:  # noqa: ANN401 (of any type)
            index = source.read_number()
            if index < 0:
                raise ValueError("no such branch")
            return branches[index](source)

        return read

    def _find_branch(self, writer: AvroSchema, reader: Sequence[AvroSchema]) -> AvroSchema | None:
        """Return the branch of the reader's union for a value: one of the same type if there is
        one, else the first to which the value can be promoted."""
        first_fitting: AvroSchema | None = None
        for branch in reader:
            schema = resolve_name(branch, self._reader_types)
            if not self._can_resolve(writer, schema):
                continue
            if type_of(schema) == type_of(writer) and full_name(schema) == full_name(writer):
                return branch
            if first_fitting is None:
                first_fitting = branch
        return first_fitting

    def _can_resolve(self, writer: AvroSchema, reader: AvroSchema) -> bool:
        """Return whether values of a type can be resolved to another one, regardless of the types
        within them."""
        written = type_of(writer)
        target = type_of(reader)
        if written != target:
            return target in PROMOTIONS.get(written, ())
        if written == "fixed" and writer["size"] != reader["size"]:
            return False
        if written not in ("record", "error", "enum", "fixed"):
            return True
        aliases = {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
        names = {reader["name"].rpartition(".")[2], *aliases}
        return writer["name"].rpartition(".")[2] in names


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
