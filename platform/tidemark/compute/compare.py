"""Compare rows column by column, and convert rows, keys and instants to text without loss."""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from tidemark.define.aggregates.combiner import SLACK
from tidemark.define.definition import Definition

_TOLERANCE = 1e-9
"""Relative difference allowed between DOUBLE values if their rounding error is unknown."""


def find_differences(
    columns: Mapping[str, DataType], left: str, right: str, *, slack: Collection[str] = ()
) -> Column:
    """Return an array of the fields in which the structs `left` and `right` differ.

    Each entry is a struct (`column`, `left`, `right`) with the field's name and its two values as
    text. All fields of a null struct count as null.

    Args:
        columns: the names and types of the fields to compare.
        slack: the DOUBLE fields whose rounding error is known. For each, the field `SLACK` of
            `right` has the largest possible difference between two results for the same events.
    """
    differences = [
        _compare_field(name, kind, left, right, has_slack=name in slack)
        for name, kind in columns.items()
    ]
    return F.array_compact(F.array(*differences))


def same_window(transform: Definition, left: str, right: str) -> Column:
    """Return whether rows with the aliases `left` and `right` have the same window and keys.

    Two nulls are equal.
    """
    conditions = [
        F.col(f"{left}.{c}").eqNullSafe(F.col(f"{right}.{c}")) for c in transform.by_window
    ]
    # Combine the conditions in pairs. A chain of conditions on many keys would be nested more
    # deeply than a request to the engine may be.
    while len(conditions) > 1:
        conditions = [
            reduce(and_, conditions[start : start + 2]) for start in range(0, len(conditions), 2)
        ]
    return conditions[0]


def iso_text(instant: str) -> Column:
    """Return a TIMESTAMP column as ISO 8601 text, UTC."""
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")


def keys_as_json(keys: Sequence[str], struct: str | None = None) -> Column:
    """Return key columns as a JSON object that includes nulls.

    With `struct`, the keys are fields of that struct column.
    """
    if not keys:
        return F.lit("{}")
    fields = [F.col(key if struct is None else f"{struct}.{key}").alias(key) for key in keys]
    return exact_json(*fields)


def _compare_field(name: str, kind: DataType, left: str, right: str, *, has_slack: bool) -> Column:
    a = F.col(f"{left}.{name}")
    b = F.col(f"{right}.{name}")
    same = a.eqNullSafe(b)
    if isinstance(kind, DoubleType | FloatType):
        tolerance = _TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        if has_slack:
            tolerance = F.coalesce(F.col(f"{right}.{SLACK}.{name}"), tolerance)
        # With an infinite tolerance, any two values would be equal.
        near = (tolerance < float("inf")) & (F.abs(a - b) <= tolerance)
        same = same | F.coalesce(near, F.lit(False))
    both = F.struct(
        F.lit(name).alias("column"),
        a.cast("string").alias("left"),
        b.cast("string").alias("right"),
    )
    return F.when(~same, both)


# By default, the engine omits fields that are null, and the microseconds of times.
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def exact_json(*fields: Column) -> Column:
    """Return columns as a JSON object, with nulls and with the microseconds of times."""
    return struct_as_json(F.struct(*fields))


def struct_as_json(struct: Column) -> Column:
    """Return a struct as a JSON object, with nulls and with the microseconds of times."""
    return F.to_json(struct, _OPTIONS)
