"""Find fields of records that the source does not declare, and that are therefore ignored."""

import json
from collections.abc import Collection, Iterable
from typing import Any

from tidemark_streaming.payloads.json_records import Json
from tidemark_streaming.payloads.payload import UndecodableError

MAX_NAMES = 20
"""The maximum number of fields to report per arrival. An object whose field names are data can have
any number of fields.
"""

_SAMPLED_VALUES = 50
"""The maximum number of values in the sample of an arrival, per batch of records that is read."""


def sample_step(values: int) -> int:
    """Return the distance between two values of a sample."""
    return -(-values // _SAMPLED_VALUES) or 1


def find_undeclared(
    values: Iterable[bytes | None], declared: Collection[str], payload: Json
) -> tuple[str, ...]:
    """Search JSON values for fields that the source does not declare.

    Args:
        values: a sample of the values of an arrival.
        declared: the names of the declared fields.
        payload: the format of the values.

    Returns:
        The names of at most `MAX_NAMES` undeclared fields, sorted.
    """
    names = set[str]()
    for value in values:
        names.update(_field_names(value, payload))
    return tuple(sorted(names.difference(declared))[:MAX_NAMES])


def _field_names(value: bytes | None, payload: Json) -> Iterable[str]:
    if not value:
        return ()
    try:
        parsed: Any = json.loads(payload.json_text(value))
    except (ValueError, RecursionError, UndecodableError):
        return ()
    if isinstance(parsed, dict):
        return parsed
    return ()
