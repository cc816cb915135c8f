"""Compare the windows of rows, and convert rows, keys and instants to text without loss."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.definition import Definition


def same_window(definition: Definition, alias: str, other_alias: str) -> Column:
    """Return whether rows with the two aliases have the same window and keys.

    Two nulls are equal.
    """
    return same_values(definition.by_window, alias, other_alias)


def same_values(columns: Sequence[str], alias: str, other_alias: str) -> Column:
    """Return whether rows with the two aliases are equal in some columns.

    Two nulls are equal.
    """
    conditions = [F.col(f"{alias}.{c}").eqNullSafe(F.col(f"{other_alias}.{c}")) for c in columns]
    # Combine the conditions in pairs. A chain of conditions on many keys would be nested more
    # deeply than a request to the engine may be.
    while len(conditions) > 1:
        paired: list[Column] = []
        for start in range(0, len(conditions), 2):
            paired.append(reduce(and_, conditions[start : start + 2]))
        conditions = paired
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
    prefix = ""
    if struct is not None:
        prefix = f"{struct}."
    return exact_json([F.col(f"{prefix}{key}").alias(key) for key in keys])


# By default, the engine omits fields that are null, and the microseconds of times.
_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def exact_json(fields: list[Column]) -> Column:
    """Return columns as a JSON object, with nulls and with the microseconds of times."""
    return struct_as_json(F.struct(fields))


def struct_as_json(struct: Column) -> Column:
    """Return a struct as a JSON object, with nulls and with the microseconds of times."""
    return F.to_json(struct, _OPTIONS)
