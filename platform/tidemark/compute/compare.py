"""Compare rows column by column, and write rows, keys and instants as text that identifies them."""

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
    """Return the columns in which the structs `left` and `right` differ.

    The result is an array of structs (`column`, `left`, `right`) with the values as text. A null
    struct counts as all nulls.

    Args:
        slack: the columns whose rounding error is in the field `SLACK` of `right`: the possible
            difference between DOUBLE values of the same events.
    """
    each = [
        _difference(name, kind, left, right, known=name in slack) for name, kind in columns.items()
    ]
    return F.array_compact(F.array(*each))


def same_window(transform: Definition, left: str, right: str) -> Column:
    """Return whether two aliased sets of rows agree in window and keys; nulls are equal."""
    each = [F.col(f"{left}.{c}").eqNullSafe(F.col(f"{right}.{c}")) for c in transform.by_window]
    # In pairs: a chain of many keys would be nested deeper than a request to the engine may be.
    while len(each) > 1:
        each = [reduce(and_, each[at : at + 2]) for at in range(0, len(each), 2)]
    return each[0]


def iso_text(instant: str) -> Column:
    """Return a TIMESTAMP column as ISO 8601 text, UTC."""
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")


def keys_as_json(keys: Sequence[str], struct: str | None = None) -> Column:
    """Return columns, or fields of the struct column `struct`, as JSON, including nulls."""
    if not keys:
        return F.lit("{}")
    fields = [F.col(key if struct is None else f"{struct}.{key}").alias(key) for key in keys]
    return exact_json(*fields)


def _difference(name: str, kind: DataType, left: str, right: str, *, known: bool) -> Column:
    a, b = F.col(f"{left}.{name}"), F.col(f"{right}.{name}")
    same = a.eqNullSafe(b)
    if isinstance(kind, DoubleType | FloatType):
        apart = _TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        if known:
            apart = F.coalesce(F.col(f"{right}.{SLACK}.{name}"), apart)
        # With an infinite tolerance, any two values would be equal.
        near = (apart < float("inf")) & (F.abs(a - b) <= apart)
        same = same | F.coalesce(near, F.lit(False))
    both = F.struct(
        F.lit(name).alias("column"),
        a.cast("string").alias("left"),
        b.cast("string").alias("right"),
    )
    return F.when(~same, both)


# By default, the engine leaves out nulls, and everything below a millisecond.
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
