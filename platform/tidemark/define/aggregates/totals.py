"""Sums and means: what is added up, and by how much.

A partial has the values' `sum` and `count`, and what tells whether the sum can be trusted:

| field | of FLOAT and DOUBLE | of other numbers |
| --- | --- | --- |
| `plus` | the sum of the sizes \\|x\\| | the sum of the values from 0 |
| `minus` | null | the sum of the values below 0 |
| `over` | false | whether `plus` or `minus` is more than the type holds |

A sum overflows if its positive values, or its negative ones, add up to more than its type holds.
That depends on the events alone. Whether the sum itself did on the way would depend on the order
of addition, and so on how the events were cut into runs.

The order of addition changes the last digits of a sum of doubles: two sums of n values differ by at
most `n * 2^-52` of the sizes added up, however small the sum is.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

ROUNDING = 2.0**-52
"""How far apart two orders of addition can be, for each value, as a share of the sizes added up."""


def partial(value: Column, *unheld: Column) -> Column:
    """The totals of values.

    Args:
        unheld: BOOLEAN, whether a value could not be read as a number to add up.
    """
    # The engine knows a column's type when it plans, and drops the branch that does not apply.
    floating = F.typeof(value).isin("float", "double")
    plus = F.when(floating, F.abs(value)).when(value >= 0, value)
    minus = F.when(~floating & (value < 0), value)
    over = _lost(plus) | _lost(minus)
    for each in unheld:
        over = over | F.coalesce(F.bool_or(each), F.lit(False))
    return F.struct(
        F.try_sum(value).alias("sum"),
        F.count(value).alias("count"),
        F.try_sum(plus).alias("plus"),
        F.try_sum(minus).alias("minus"),
        over.alias("over"),
    )


def merge(partials: Column) -> Column:
    """The totals of the values of all partials."""
    known = F.coalesce(F.bool_or(partials["over"]), F.lit(False))
    return F.struct(
        F.try_sum(partials["sum"]).alias("sum"),
        F.coalesce(F.sum(partials["count"]), F.lit(0)).alias("count"),
        F.try_sum(partials["plus"]).alias("plus"),
        F.try_sum(partials["minus"]).alias("minus"),
        (known | _lost(partials["plus"]) | _lost(partials["minus"])).alias("over"),
    )


def total(merged: Column) -> Column:
    """The sum; null if it overflowed."""
    return F.when(~merged["over"], merged["sum"])


def average(merged: Column) -> Column:
    """The mean; null if it overflowed."""
    return F.when(~merged["over"], F.try_divide(merged["sum"], merged["count"]))


def total_overflowed(merged: Column) -> Column:
    """Whether the sum overflowed."""
    return merged["over"]


def average_overflowed(merged: Column) -> Column:
    """Whether the mean's sum overflowed, or the mean itself."""
    return merged["over"] | ((merged["count"] > 0) & average(merged).isNull())


def total_slack(merged: Column) -> Column:
    """How far apart sums of the same values can be."""
    return ROUNDING * merged["count"] * merged["plus"].cast("double")


def average_slack(merged: Column) -> Column:
    """How far apart means of the same values can be, the rounding of the division included."""
    share = F.try_divide(merged["plus"].cast("double"), merged["count"])
    return ROUNDING * (merged["count"] + 1) * share


def _lost(values: Column) -> Column:
    """Whether the sum of values is more than their type holds."""
    return (F.count(values) > 0) & F.try_sum(values).isNull()
