"""Avro whose schema refers to itself, so that a value may be nested as deep as its bytes say.

The reader that is compiled follows them without a bound, until its process ends for want of stack.
The one in Python ends with an error; it is slower, and reads the values of such schemas alone.
"""

from collections.abc import Mapping
from typing import Any

DEEPEST = 100
"""Records, arrays and maps that may be within one another, as in Protobuf's messages."""


def refers_to_itself(schema: Any) -> bool:  # noqa: ANN401 (fastavro's own)
    """Whether a parsed schema does, or is itself deeper than can be followed."""
    known, passed = dict[str, Any](), set[str]()
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict):
            known |= part.get("__named_schemas", {})
    try:
        return _returns(schema, known, frozenset(), passed)
    except RecursionError:
        return True


def too_deep(value: Any) -> bool:  # noqa: ANN401 (any)
    """Whether more than `DEEPEST` records, arrays and maps are within one another."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _within(one) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _within(value: Any) -> Any:  # noqa: ANN401 (any)
    return value.values() if isinstance(value, dict) else value


def _returns(
    part: Any,  # noqa: ANN401 (fastavro's own)
    known: Mapping[str, Any],
    around: frozenset[str],
    passed: set[str],
) -> bool:
    """Whether a part of a schema refers to a record that is around it.

    Args:
        known: records and others by their names.
        passed: names of those that don't.
    """
    if isinstance(part, list):
        return any(_returns(one, known, around, passed) for one in part)
    if isinstance(part, str):
        if part in around:
            return True
        return part in known and _returns(known[part], known, around, passed)
    if "fields" not in part:
        inner = (part[name] for name in ("type", "items", "values") if name in part)
        return any(_returns(one, known, around, passed) for one in inner)
    name = part["name"]
    if name in passed:
        return False
    if any(_returns(one["type"], known, around | {name}, passed) for one in part["fields"]):
        return True
    passed.add(name)
    return False
