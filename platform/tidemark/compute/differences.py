"""Find the differences between two answers, such as published and recomputed windows.

| rows of an answer | differ if | functions |
| --- | --- | --- |
| with an identity: a window and its keys | their values differ, or a side | `pair_rows` and |
| | does not have them | `find_differences` |
| without an identity: events | a side has them more often | `cancel_rows` |
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from tidemark.define.aggregates.combiner import SLACK

_TOLERANCE = 1e-9
"""Relative difference allowed between DOUBLE values if their rounding error is unknown."""


def pair_rows(left_rows: DataFrame, right_rows: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return a row for each identity, with `key`, and the structs `left` and `right`.

    `key` is a struct of the columns of the identity. `left` and `right` have all columns of a row;
    a struct is null if its side has no row. Two nulls in an identity are equal.
    """

    def to_structs(rows: DataFrame, name: str) -> DataFrame:
        columns = [F.col(f"`{column}`") for column in rows.columns]
        key = F.struct(list(identity)).alias(f"{name}_key")
        return rows.select(key, F.struct(columns).alias(name))

    same = F.col("left_key").eqNullSafe(F.col("right_key"))
    paired = to_structs(left_rows, "left").join(to_structs(right_rows, "right"), same, "full")
    return paired.select(F.coalesce("left_key", "right_key").alias("key"), "left", "right")


def find_differences(
    columns: Mapping[str, DataType],
    left_struct: str,
    right_struct: str,
    *,
    slack: Collection[str] = (),
) -> Column:
    """Return an array of the fields in which two structs differ.

    Each entry is a struct (`column`, `left`, `right`) with the field's name and its two values as
    text. All fields of a null struct count as null.

    Args:
        columns: the names and types of the fields to compare.
        slack: the DOUBLE fields whose rounding error is known. For each, the field `SLACK` of
            the right struct has the largest possible difference between two results for the same
            events.
    """
    differences: list[Column] = []
    for name, kind in columns.items():
        has_slack = name in slack
        difference = _compare_field(name, kind, left_struct, right_struct, has_slack=has_slack)
        differences.append(difference)
    return F.array_compact(F.array(differences))


def _compare_field(
    name: str, kind: DataType, left_struct: str, right_struct: str, *, has_slack: bool
) -> Column:
    a = F.col(f"{left_struct}.{name}")
    b = F.col(f"{right_struct}.{name}")
    same = a.eqNullSafe(b)
    if isinstance(kind, DoubleType | FloatType):
        tolerance = _TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        if has_slack:
            tolerance = F.coalesce(F.col(f"{right_struct}.{SLACK}.{name}"), tolerance)
        # With an infinite tolerance, any two values would be equal.
        near = (tolerance < float("inf")) & (F.abs(a - b) <= tolerance)
        same = same | F.coalesce(near, F.lit(False))
    both = F.struct(
        F.lit(name).alias("column"),
        a.cast("string").alias("left"),
        b.cast("string").alias("right"),
    )
    return F.when(~same, both)


def cancel_rows(
    rows: DataFrame, identity: Sequence[str], sign: str, facts: Sequence[Column] = ()
) -> DataFrame:
    """Return each distinct row whose signs do not add up to zero, with the sum of its signs.

    Args:
        identity: the columns in which equal rows are equal.
        sign: the column with 1 for a row, and -1 for a row that takes back an equal one.
        facts: aggregate expressions for further columns of the result.
    """
    net_sign = F.sum(sign).alias(sign)
    net = rows.groupBy(list(identity)).agg(*facts, net_sign)
    return net.where(F.col(sign) != 0)
