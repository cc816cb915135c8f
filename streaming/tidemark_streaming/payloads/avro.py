"""Decode Avro, with a given schema or with the schema whose ID each record contains."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from tidemark.base.arguments import checked_class
from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, summarize_error
from tidemark_streaming.payloads.avro_input import Input, Read
from tidemark_streaming.payloads.avro_reader import Compiler, ResolutionError
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Event,
    UndecodableError,
    decode_each,
)
from tidemark_streaming.payloads.registry import Registry, split_id
from tidemark_streaming.payloads.schema import Schema
from tidemark_streaming.payloads.time_rules import TimeRules

_MALFORMED = (EOFError, LookupError, ValueError, ArithmeticError, TypeError)
_WRONG = (SchemaParseException, UnknownType, ValueError, TypeError, LookupError, RecursionError)
_TOO_DEEP = f"The record has more than {MAX_DEPTH} levels of nested records, arrays and maps."


@checked_class
@dataclass(frozen=True)
class Avro:
    """Avro: each value is the binary encoding of one record, without a file header.

    A record's fields are the columns with the same names; a column without a field is null. A
    record with a schema ID is read with the schema of that ID, and resolved to `schema` if `schema`
    is given. Fields that the record lacks then have the defaults of `schema`.

    Example:
        Avro(registry="schemas")  # each value begins with the ID of its schema

    Args:
        schema: the path of a file with a schema, or the text of a schema.
        by_id: true if each value begins with its schema's ID, as Confluent's serializers write it;
            by default only if no `schema` is given.
        registry: the source of schemas by ID: a folder with a file `<id>.avsc` for each schema, or
            the address of a registry; default: the setting `schema_registry`.
        time_zone: the zone of `local-timestamp-*`, which are times without a time zone. Without it,
            they fit only TIMESTAMP_NTZ columns.
        finer: `truncate` to drop the digits of times beyond microseconds; without it, a record with
            such digits is a dead letter.

    Raises:
        DefinitionError: the schema can't be read, or is not the schema of a record; or the time
            zone is unknown.
    """

    schema: str | Path | None = None
    by_id: bool | None = None
    registry: str | Path | None = None
    time_zone: str | None = None
    finer: str | None = None
    _writers: "dict[int, _Writer]" = field(
        default_factory=lambda: dict[int, _Writer](), init=False, repr=False, compare=False
    )
    _writer: "_Writer | None" = field(default=None, init=False, repr=False, compare=False)
    _reader: "_Parsed | None" = field(default=None, init=False, repr=False, compare=False)
    _registry: Registry = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.schema is None and self.by_id is False:
            raise DefinitionError("Avro with by_id=False needs a schema: set `schema`.")
        _ = self._time_rules
        object.__setattr__(self, "_registry", Registry(self.registry))
        if self.schema is not None:
            parsed = _load_schema(self.schema)
            object.__setattr__(self, "_reader", parsed)
            object.__setattr__(self, "_writer", _Writer.from_schemas(parsed, None))

    def decode_values(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        return decode_each(values, columns, self.decode_event, self._time_rules)

    @property
    def _time_rules(self) -> TimeRules:
        return TimeRules(self.time_zone, self.finer, "Avro(…)")

    def decode_event(self, value: bytes) -> Event:
        named = self.schema is None if self.by_id is None else self.by_id
        if named:
            return self._decode_by_id(value)
        return self._decode_by_schema(value)

    def _decode_by_schema(self, value: bytes) -> Event:
        assert self._writer is not None
        return self._writer.read_event(value, "the given schema")

    def _decode_by_id(self, value: bytes) -> Event:
        number, content = split_id(value)
        if number not in self._writers:
            written = _parse_registered(number, self._registry.find_schema(number))
            self._writers[number] = _Writer.from_schemas(written, self._reader)
        return self._writers[number].read_event(content, f"schema {number}")


@dataclass(frozen=True)
class _Parsed:
    """A parsed schema.

    Args:
        schema: the schema in fastavro's form.
        types: the named types of the schema, and of the schemas that it refers to.
    """

    schema: Any
    types: Mapping[str, Any]


@dataclass(frozen=True)
class _Writer:
    """The schema with which values were written.

    Args:
        reads: reads a value that was written with the schema.
    """

    reads: Read

    @classmethod
    def from_schemas(cls, written: _Parsed, reader: _Parsed | None) -> "_Writer":
        """Return a writer whose values are resolved to the reader's schema, if there is one."""
        compiler = Compiler(written.types, {} if reader is None else reader.types)
        try:
            return cls(
                compiler.create_reader(written.schema, None if reader is None else reader.schema)
            )
        except RecursionError:
            # No value of the schema could be read.
            return cls(_too_deep)

    def read_event(self, content: bytes, schema_name: str) -> Event:
        source = Input(content)
        try:
            event = self.reads(source)
        except ResolutionError as error:
            raise UndecodableError(
                f"The record was written with {schema_name} and can't be resolved to the `schema` "
                f"of Avro(…), because {error}."
            ) from None
        except RecursionError:
            raise UndecodableError(_TOO_DEEP) from None
        except _MALFORMED as error:
            why = "it ends too early" if isinstance(error, EOFError) else "it is damaged"
            raise UndecodableError(
                f"The record can't be decoded with {schema_name}: {why}."
            ) from None
        if left := len(content) - source.position:
            raise UndecodableError(
                f"The record is {format_count(left, 'byte')} longer than {schema_name} specifies."
            )
        if not isinstance(event, dict):
            raise UndecodableError(
                f"The value must be an Avro record, but {schema_name} gives a value "
                f"of type {type(event).__name__}."
            )
        return event


def _too_deep(source: Input) -> NoReturn:
    raise RecursionError


def _parse_registered(number: int, schema: Schema) -> _Parsed:
    """Return a registry's schema, including the schemas that it refers to.

    Raises:
        DataError: the schema is not valid Avro.
        UndecodableError: the schema has another format.
    """
    if schema.kind != "AVRO":
        raise UndecodableError(f"The record's schema {number} is not Avro, but {schema.kind}.")
    try:
        types = dict[str, Any]()
        return _Parsed(_parse_with_references(schema, types), types)
    except _WRONG as error:
        raise DataError(
            f"Schema {number} of the registry is not valid Avro: {_first_line(error)}. No record "
            "is lost: correct the schema in the registry, and ingest again."
        ) from None


def _parse_with_references(schema: Schema, named_schemas: dict[str, Any]) -> Any:  # noqa: ANN401 (fastavro's own)
    for reference in schema.references:
        _parse_with_references(reference, named_schemas)
    return parse_schema(json.loads(schema.text), named_schemas)


def _load_schema(schema: str | Path) -> _Parsed:
    is_text = isinstance(schema, str) and schema.lstrip().startswith(("{", "["))
    name = "The Avro schema" if is_text else f"The Avro schema '{schema}'"
    try:
        text = str(schema) if is_text else Path(schema).read_text()
        types = dict[str, Any]()
        parsed = parse_schema(json.loads(text), types)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise DefinitionError(f"{name} can't be read: {why}.") from None
    except _WRONG as error:
        raise DefinitionError(f"{name} is not valid: {_first_line(error)}.") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise DefinitionError(f"{name} must be a record, whose fields are the columns.")
    return _Parsed(parsed, types)


def _first_line(error: Exception) -> str:
    if isinstance(error, UnknownType):
        return f"unknown type {error}"
    return summarize_error(error)
