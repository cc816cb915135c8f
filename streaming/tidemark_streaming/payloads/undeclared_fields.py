"""Find JSON fields that a source does not declare: they are ignored, but reported.

Reading every value completely would cost as much as decoding it. A sample of each arrival is read,
spread over all of its values; a small arrival is read completely.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

_SAMPLED_VALUES = 50
"""The sample size of an arrival, in values."""

_MAX_NAMES = 20
"""The maximum number of fields to report per arrival. An object whose field names are data has any
number.
"""


Fields = Mapping[int, tuple[str, ...]]
"""Undeclared fields, by `chunk`."""


def merge_samples(found: Iterable[Fields]) -> Fields:
    """Return the union of the fields of several samples."""
    names = dict[int, set[str]]()
    for each in found:
        for chunk, some in each.items():
            names.setdefault(chunk, set()).update(some)
    return {chunk: tuple(sorted(some)[:_MAX_NAMES]) for chunk, some in names.items()}


def sample_fields(records: pa.Table, declared: Iterable[str]) -> Fields:
    """Return by `chunk` the undeclared fields of the objects in `value`."""
    known, found = frozenset(declared), dict[int, tuple[str, ...]]()
    numbers = records["chunk"].to_numpy()
    for chunk in np.unique(numbers).tolist():
        mine = np.flatnonzero(numbers == chunk)
        some = mine[:: -(-len(mine) // _SAMPLED_VALUES)]
        values = records["value"].take(pa.array(some)).to_pylist()
        if names := {name for value in values for name in _fields(value)} - known:
            found[chunk] = tuple(sorted(names)[:_MAX_NAMES])
    return found


def _fields(value: bytes | None) -> Iterable[str]:
    try:
        parsed: Any = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return ()
    return parsed if isinstance(parsed, dict) else ()
