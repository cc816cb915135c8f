"""The partials of sums, which also show whether the sum is reliable.

A partial has the `sum` and `count` of the values. Three further fields bound the rounding error of
floating-point numbers, and detect an overflow of other numbers:

| field | for FLOAT and DOUBLE | for other numbers |
| --- | --- | --- |
| `plus` | the sum of the absolute values \\|x\\| | the sum of the values of 0 or more |
| `minus` | null | the sum of the values below 0 |
| `over` | false | whether `plus` or `minus` exceeds its type |

A sum overflows if its positive values, or its negative ones, add up to more than its type holds.
This rule depends on the events alone. An overflow of the intermediate sum would depend on the order
of addition, and therefore on how the events were divided into runs.

The order of addition changes the last digits of a sum of doubles. Two sums of the same n values
differ by at most `n * 2^-52` times the sum of the absolute values, however small the sum itself is.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.aggregates.arrow_merge import Array, ArrowMerge, compute
from tidemark.define.aggregates.type_constants import decided_by_type

ROUNDING = 2.0**-52
"""The largest effect of the order of addition, per value, as a share of the sum of the absolute
values.
"""


def partial(value: Column, original: Column | None = None) -> Column:
    """Aggregate values into a partial: a struct with their sum, count, and overflow.

    Args:
        original: decides by its sign whether the value belongs to `plus` or `minus`; the value
            itself by default.
    """
    if original is None:
        original = value
    floating = _is_floating(value)
    plus = F.when(floating, F.abs(value)).when(original >= 0, value)
    minus = F.when(original < 0, value)
    return F.struct(
        F.try_sum(value).alias("sum"),
        F.count(value).alias("count"),
        F.try_sum(plus).alias("plus"),
        F.when(~floating, F.try_sum(minus)).alias("minus"),
        (~floating & (_has_overflow(plus) | _has_overflow(minus))).alias("over"),
    )


def merge(partials: Column) -> Column:
    """Add up partials; the result is again a partial."""
    had_overflow = F.coalesce(F.bool_or(partials["over"]), F.lit(False))
    over = had_overflow | _has_overflow(partials["plus"]) | _has_overflow(partials["minus"])
    floating = _is_floating(partials["sum"])
    return F.struct(
        F.try_sum(partials["sum"]).alias("sum"),
        F.coalesce(F.sum(partials["count"]), F.lit(0)).alias("count"),
        F.try_sum(partials["plus"]).alias("plus"),
        F.when(~floating, F.try_sum(partials["minus"])).alias("minus"),
        (~floating & over).alias("over"),
    )


def total(merged: Column) -> Column:
    """Return the sum; null if it overflowed."""
    return F.when(~merged["over"], merged["sum"])


def total_type(kind: str) -> str | None:
    """Return the type of a sum of values of a type; None for a DECIMAL and non-numeric types."""
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    if kind in ("float", "double"):
        return "double"
    return None


def has_total_overflowed(merged: Column) -> Column:
    return merged["over"]


def total_slack(merged: Column) -> Column:
    """Return the largest difference that the order of addition can make to the sum."""
    return ROUNDING * merged["count"] * merged["plus"].cast("double")


def _has_no_overflow(partials: Array) -> bool:
    return not compute.any(compute.struct_field(partials, "over")).as_py()


def _total_slack_in_arrow(total: Array, counts: Array, magnitudes: Array, minus: Array) -> Array:
    rounding = compute.multiply(ROUNDING, compute.cast(counts, "double"))
    return compute.multiply(rounding, compute.cast(magnitudes, "double", safe=False))


ARROW_MERGE = ArrowMerge(
    # `plus` and `minus` are merged so that sums near an overflow are left to the engine.
    {"sum": "sum", "count": "sum", "plus": "sum", "minus": "sum"},
    slack=_total_slack_in_arrow,
    accepts=_has_no_overflow,
)
"""Computes `total` and `total_slack` of merged partials."""


def _is_floating(value: Column) -> Column:
    """Return whether a column is a FLOAT or DOUBLE, which can't overflow, as a constant."""
    return decided_by_type(F.typeof(value).isin("float", "double"))


def _has_overflow(values: Column) -> Column:
    """Return whether the sum of values exceeds the type of the sum."""
    return (F.count(values) > 0) & F.try_sum(values).isNull()
