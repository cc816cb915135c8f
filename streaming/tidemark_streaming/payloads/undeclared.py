"""Fields of JSON objects that a source does not declare: they are passed over, and told.

To read all of every value once more would cost as much as to parse it. Some of each arrival are
looked at, spread over it; of a small one all.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

LOOKED_AT = 50
"""Values of an arrival that are looked at."""

NAMED = 20
"""Fields of an arrival that are named: objects whose fields are data have any number."""


Fields = Mapping[int, tuple[str, ...]]
"""Undeclared fields, by `chunk`."""


def merged(found: Iterable[Fields]) -> Fields:
    """Return what several looks have found."""
    names = dict[int, set[str]]()
    for each in found:
        for chunk, some in each.items():
            names.setdefault(chunk, set()).update(some)
    return {chunk: tuple(sorted(some)[:NAMED]) for chunk, some in names.items()}


def fields(records: pa.Table, declared: Iterable[str]) -> Fields:
    """By `chunk`, the fields beside the declared ones of the objects in `value`."""
    known, found = frozenset(declared), dict[int, tuple[str, ...]]()
    numbers = records["chunk"].to_numpy()
    for chunk in np.unique(numbers).tolist():
        mine = np.flatnonzero(numbers == chunk)
        some = mine[:: -(-len(mine) // LOOKED_AT)]
        values = records["value"].take(pa.array(some)).to_pylist()
        if names := {name for value in values for name in _fields(value)} - known:
            found[chunk] = tuple(sorted(names)[:NAMED])
    return found


def _fields(value: bytes | None) -> Iterable[str]:
    try:
        told: Any = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return ()
    return told if isinstance(told, dict) else ()
