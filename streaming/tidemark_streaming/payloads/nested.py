"""Bound the depth of Avro values whose schema refers to itself.

The bytes of such a value determine how deep the value is nested. fastavro's compiled reader
descends without a bound, until its process runs out of stack. fastavro's Python reader raises an
error instead. The Python reader is slower, so it only reads the values of such schemas.
"""

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
"""The maximum depth of nested records, arrays and maps. Protobuf has the same limit for messages.
"""


def refers_to_itself(schema: Any) -> bool:  # noqa: ANN401 (fastavro's own)
    """Return whether a parsed schema refers to itself. Return True also if the schema is nested too
    deeply to find out."""
    known, passed = dict[str, Any](), set[str]()
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict):
            known |= part.get("__named_schemas", {})
    try:
        return _refers_back(schema, known, frozenset(), passed)
    except RecursionError:
        return True


def is_too_deep(value: Any) -> bool:  # noqa: ANN401 (any)
    """Return whether records, arrays and maps are nested more than `MAX_DEPTH` levels deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        parts = (one.values() if isinstance(one, dict) else one for one in level)
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _refers_back(
    part: Any,  # noqa: ANN401 (fastavro's own)
    known: Mapping[str, Any],
    around: frozenset[str],
    passed: set[str],
) -> bool:
    """Return whether a part of a schema refers to a record that contains it.

    Args:
        known: the named types, by name.
        around: the names of the records that contain the part.
        passed: the names of records in which no part refers back. The function adds to them.
    """
    if isinstance(part, list):
        return any(_refers_back(one, known, around, passed) for one in part)
    if isinstance(part, str):
        if part in around:
            return True
        return part in known and _refers_back(known[part], known, around, passed)
    if "fields" not in part:
        inner = (part[name] for name in ("type", "items", "values") if name in part)
        return any(_refers_back(one, known, around, passed) for one in inner)
    name = part["name"]
    if name in passed:
        return False
    if any(_refers_back(one["type"], known, around | {name}, passed) for one in part["fields"]):
        return True
    passed.add(name)
    return False
