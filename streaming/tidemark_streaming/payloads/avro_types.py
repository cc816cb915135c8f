"""The types of Avro schemas: find them, compare them, and describe them."""

from collections.abc import Mapping
from typing import Any

AvroSchema = Any
"""A parsed schema of fastavro: a name, a dict, or a list for a union."""

NamedTypes = Mapping[str, AvroSchema]
"""Named types, by name."""

_PRIMITIVES = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
)
PROMOTIONS = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
"""The other types to which a value can be resolved, by its written type."""


def resolve_name(schema: AvroSchema, named: NamedTypes) -> AvroSchema:
    """Return the type that a name stands for."""
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        return named[schema]
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return resolve_name(schema["type"], named)
    if isinstance(schema, dict) and schema["type"] not in _PRIMITIVES and schema["type"] in named:
        return named[schema["type"]]
    return schema


def type_of(schema: AvroSchema) -> str:
    """Return the name of a schema's type, such as `record` or `long`."""
    if isinstance(schema, str):
        return schema
    return schema["type"]


def full_name(schema: AvroSchema) -> str | None:
    """Return the name of a named type, with its namespace; None for other types."""
    if isinstance(schema, dict):
        return schema.get("name")
    return None


def _describe_schema(schema: AvroSchema) -> str:
    if isinstance(schema, list):
        return "a union"
    name = full_name(schema)
    if name:
        return f"{type_of(schema)} {name}"
    return type_of(schema)


def describe_mismatch(writer: AvroSchema, reader: AvroSchema) -> str:
    """Return why a value can't be resolved, as a text that follows "the field 'x' "."""
    return (
        f"was written as {_describe_schema(writer)}, which does not fit {_describe_schema(reader)}"
    )


def is_json_of(schema: AvroSchema, value: Any) -> bool:  # noqa: ANN401 (JSON)
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
    json_types = kinds.get(type_of(schema), (str,))
    # In Python, a boolean is also an integer.
    if isinstance(value, bool):
        return bool in json_types
    return isinstance(value, json_types)
