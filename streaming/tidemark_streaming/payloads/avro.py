"""Decode Avro, with a given schema or with the schema whose ID each record contains."""

import json
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro import _read_py, parse_schema, schemaless_reader
from fastavro.read import LOGICAL_READERS, SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from tidemark.base.arguments import checked_class
from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, summarize
from tidemark_streaming.payloads.nested import MAX_DEPTH, is_too_deep, refers_to_itself
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Event,
    UndecodableError,
    decode_each,
)
from tidemark_streaming.payloads.registry import Registry, split_id
from tidemark_streaming.payloads.schema import Schema
from tidemark_streaming.payloads.time_rules import NO_RULES

_MALFORMED = (EOFError, LookupError, ValueError, ArithmeticError, TypeError, SchemaResolutionError)
_WRONG = (SchemaParseException, UnknownType, ValueError, TypeError, LookupError, RecursionError)
_TOO_DEEP = f"The record has more than {MAX_DEPTH} levels of nested records, arrays and maps."


def _read_decimal(data: bytes, writer: Any = None, reader: Any = None) -> Decimal:  # noqa: ANN401 (fastavro's own)
    """Return a decimal with all digits that were written."""
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}e-{writer.get('scale', 0)}")


# fastavro's own reader rounds a number that has more digits than its schema declares.
LOGICAL_READERS.update({"bytes-decimal": _read_decimal, "fixed-decimal": _read_decimal})


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

    Raises:
        DefinitionError: the schema can't be read, or is not the schema of a record.
    """

    schema: str | Path | None = None
    by_id: bool | None = None
    registry: str | Path | None = None
    _writers: "dict[int, _Writer]" = field(
        default_factory=lambda: dict[int, _Writer](), init=False, repr=False, compare=False
    )
    _writer: "_Writer | None" = field(default=None, init=False, repr=False, compare=False)
    _reader: Any = field(default=None, init=False, repr=False, compare=False)
    _registry: Registry = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.schema is None and self.by_id is False:
            raise DefinitionError("Avro with by_id=False needs a schema: set `schema`.")
        object.__setattr__(self, "_registry", Registry(self.registry))
        if self.schema is not None:
            object.__setattr__(self, "_reader", _load_schema(self.schema))
            object.__setattr__(self, "_writer", _Writer.of(self._reader))

    def decode(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        return decode_each(values, columns, self.event, NO_RULES)

    def event(self, value: bytes) -> Event:
        named = self.schema is None if self.by_id is None else self.by_id
        return self._decode_by_id(value) if named else self._decode_by_schema(value)

    def _decode_by_schema(self, value: bytes) -> Event:
        assert self._writer is not None
        return self._writer.read(value, None, "the given schema")

    def _decode_by_id(self, value: bytes) -> Event:
        number, content = split_id(value)
        if number not in self._writers:
            self._writers[number] = _Writer.of(
                _parse_registered(number, self._registry.schema(number))
            )
        return self._writers[number].read(content, self._reader, f"schema {number}")


@dataclass(frozen=True)
class _Writer:
    """The schema with which values were written.

    Args:
        schema: the schema in fastavro's form.
        bounded: true if the schema refers to itself. Values then need fastavro's Python reader,
            which bounds their depth.
    """

    schema: Any
    bounded: bool

    @classmethod
    def of(cls, schema: Any) -> "_Writer":  # noqa: ANN401 (fastavro's own)
        return cls(schema, refers_to_itself(schema))

    def read(self, content: bytes, reader: Any, schema_name: str) -> Event:  # noqa: ANN401 (as above)
        stream = BytesIO(content)
        read = _read_py.schemaless_reader if self.bounded else schemaless_reader
        try:
            event = read(stream, self.schema, reader)
        except SchemaResolutionError:
            raise UndecodableError(
                f"The record was written with {schema_name}, which can't be resolved to the "
                "`schema` of Avro(…)."
            ) from None
        except RecursionError:
            raise UndecodableError(_TOO_DEEP) from None
        except _MALFORMED as error:
            why = "it ends too early" if isinstance(error, EOFError) else "it is damaged"
            raise UndecodableError(
                f"The record can't be decoded with {schema_name}: {why}."
            ) from None
        if left := len(content) - stream.tell():
            raise UndecodableError(
                f"The record is {format_count(left, 'byte')} longer than {schema_name} specifies."
            )
        if not isinstance(event, dict):
            raise UndecodableError(
                f"The value must be an Avro record, but {schema_name} gives a value "
                f"of type {type(event).__name__}."
            )
        if self.bounded and is_too_deep(event):
            raise UndecodableError(_TOO_DEEP)
        return event


def _parse_registered(number: int, schema: Schema) -> Any:  # noqa: ANN401 (fastavro's own)
    """Return the parsed form of a registry's schema, including the schemas that it refers to.

    Raises:
        DataError: the schema is not valid Avro.
        UndecodableError: the schema has another format.
    """
    if schema.kind != "AVRO":
        raise UndecodableError(f"The record's schema {number} is not Avro, but {schema.kind}.")
    try:
        return _parse_with_references(schema, {})
    except _WRONG as error:
        raise DataError(
            f"Schema {number} of the registry is not valid Avro: {_first_line(error)}. No record "
            "is lost: correct the schema in the registry, and ingest again."
        ) from None


def _parse_with_references(schema: Schema, known: dict[str, Any]) -> Any:  # noqa: ANN401 (fastavro's own)
    for reference in schema.references:
        _parse_with_references(reference, known)
    return parse_schema(json.loads(schema.text), known)


def _load_schema(schema: str | Path) -> Any:  # noqa: ANN401 (fastavro's own)
    is_text = isinstance(schema, str) and schema.lstrip().startswith(("{", "["))
    name = "The Avro schema" if is_text else f"The Avro schema '{schema}'"
    try:
        text = str(schema) if is_text else Path(schema).read_text()
        parsed = parse_schema(json.loads(text))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise DefinitionError(f"{name} can't be read: {why}.") from None
    except _WRONG as error:
        raise DefinitionError(f"{name} is not valid: {_first_line(error)}.") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise DefinitionError(f"{name} must be a record, whose fields are the columns.")
    return parsed


def _first_line(error: Exception) -> str:
    if isinstance(error, UnknownType):
        return f"unknown type {error}"
    return summarize(error)
