"""The partials of means, whose sums can't overflow.

A partial has the `count` of the values and their sum, in one of two forms:

| fields | for FLOAT, DOUBLE, integers and most DECIMALs | for a wide DECIMAL |
| --- | --- | --- |
| `sum` | the sum of the values | null |
| `plus` | the sum of the absolute values \\|x\\|; null for a DECIMAL | null |
| `high`, `low` | null | the sum of the values, in two parts |
| `like` | null, but of the type of the values, which `merge` and `average` need | the same |

The engine's sum of a DECIMAL has 10 digits more than its values, but at most 38. A DECIMAL is
*wide* if its values, with all decimals of the mean, have more than 28 digits, which leaves no room
for 10 more. A wide value is stored as an integer, in units of the mean's last decimal:
`high * 10^19 + low`. Each part has at most 19 digits, so the sum of any number of parts fits.

The mean of a wide `DECIMAL(p, s)` is a `DECIMAL(38, d)` with room for all p - s digits before the
point, so it always fits. The number of decimals d is s + 2, and at least 6, but at most
38 - (p - s). The mean is rounded only once, at its last decimal; halves are rounded away from zero.
"""

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.aggregates.arrow_merge import Array, ArrowMerge, compute
from tidemark.define.aggregates.totals import ROUNDING, total_type
from tidemark.define.aggregates.type_constants import decided_by_type, with_type

_MAX_DIGITS = 38
"""The maximum number of digits of a DECIMAL."""
_SUM_DIGITS = 10
"""The number of digits by which the engine's sum of a DECIMAL is longer than its values."""
_INTEGER = f"decimal({_MAX_DIGITS}, 0)"
_PART = "1" + 19 * "0"


def partial(value: Column) -> Column:
    """Aggregate values into a partial: a struct with their count and their sum."""
    # Division turns an integer into a DOUBLE, whose sum does not overflow.
    number = value / 1
    wide = _is_wide(value)
    double = decided_by_type(F.typeof(number) == "double")
    # A text with all decimals of the mean.
    digits = F.translate(with_type(value.cast("string"), _mean_type(value)).cast("string"), ".", "")
    integer = F.when(wide, digits.cast(_INTEGER))
    low = integer % _part_size()
    return F.struct(
        F.when(~wide, F.sum(number)).alias("sum"),
        F.count(value).alias("count"),
        F.when(double, F.sum(F.abs(number))).alias("plus"),
        F.when(wide, F.sum(((integer - low) / _part_size()).cast(_INTEGER))).alias("high"),
        F.when(wide, F.sum(low.cast(_INTEGER))).alias("low"),
        # `abs` keeps the type, except that it makes a DOUBLE of a null that has no type.
        _null_like(F.max(F.abs(value))).alias("like"),
    )


def merge(partials: Column) -> Column:
    """Add up partials; the result is again a partial."""
    wide = _is_wide(partials["like"])
    return F.struct(
        F.sum(partials["sum"]).alias("sum"),
        F.coalesce(F.sum(partials["count"]), F.lit(0)).alias("count"),
        F.sum(partials["plus"]).alias("plus"),
        F.when(wide, F.sum(partials["high"])).alias("high"),
        F.when(wide, F.sum(partials["low"])).alias("low"),
        _null_like(F.max(partials["like"])).alias("like"),
    )


def average(merged: Column) -> Column:
    """Return the mean; null without values."""
    like = merged["like"]
    mean = F.try_divide(merged["sum"], merged["count"])
    wide = _is_wide(like)
    # The text of 0 in the mean's type, such as "0.000000". Its length shows the scale.
    zero = with_type(F.lit("0"), _mean_type(like)).cast("string")
    scale = F.greatest(F.length(zero) - 2, F.lit(0)).cast("string")
    number = F.concat(_wide_average(merged).cast("string"), F.lit("e-"), scale)
    kind = F.when(_has_wide_type(like), _mean_type(like)).otherwise(F.typeof(mean))
    return F.when(wide, with_type(number, kind)).otherwise(mean)


def average_type(kind: str) -> str | None:
    """Return the type of a mean of values of a type; None for a DECIMAL and non-numeric types."""
    if total_type(kind) is None:
        return None
    return "double"


def average_slack(merged: Column) -> Column:
    """Return the largest difference that the order of addition can make to the mean."""
    share = F.try_divide(merged["plus"].cast("double"), merged["count"])
    return ROUNDING * (merged["count"] + 1) * share


def _has_double_sums(partials: Array) -> bool:
    return pa.types.is_floating(partials.type.field("sum").type)


def _average_in_arrow(sums: Array, counts: Array, magnitudes: Array) -> Array:
    return compute.divide(sums, _to_positive_doubles(counts))


def _average_slack_in_arrow(sums: Array, counts: Array, magnitudes: Array) -> Array:
    numbers = _to_positive_doubles(counts)
    rounding = compute.multiply(ROUNDING, compute.add(numbers, 1.0))
    return compute.multiply(rounding, compute.divide(magnitudes, numbers))


def _to_positive_doubles(counts: Array) -> Array:
    """Return counts as doubles; null for 0, by which Arrow would divide."""
    return compute.cast(compute.if_else(compute.greater(counts, 0), counts, None), "double")


ARROW_MERGE = ArrowMerge(
    {"sum": "sum", "count": "sum", "plus": "sum"},
    finish=_average_in_arrow,
    slack=_average_slack_in_arrow,
    accepts=_has_double_sums,
)
"""Computes `average` and `average_slack` of merged partials whose sums are doubles."""


def _wide_average(merged: Column) -> Column:
    """Return the mean of wide values as an integer: 1.500000 as 1500000."""
    count = F.when(merged["count"] > 0, merged["count"]).cast(_INTEGER)
    high, remainder = _divide_integers(merged["high"], count)
    low, remainder = _divide_integers(remainder * _part_size() + merged["low"], count)
    floor = high * _part_size() + low
    # `floor` is the mean rounded down, so a half is rounded up if the mean is positive.
    is_half = 2 * remainder == count
    up = (2 * remainder > count) | (is_half & (floor >= 0))
    return floor + up.cast("int")


def _divide_integers(number: Column, divisor: Column) -> tuple[Column, Column]:
    """Return the quotient of two integers, rounded down, and the remainder."""
    remainder = F.pmod(number, divisor)
    quotient = (number - remainder) / divisor
    return quotient.cast(_INTEGER), remainder


def _null_like(value: Column) -> Column:
    return F.when(F.lit(False), value)


def _part_size() -> Column:
    return F.lit(_PART).cast(_INTEGER)


def _is_wide(value: Column) -> Column:
    """Return a constant: true if the column has a wide DECIMAL type, whose sum could overflow."""
    return decided_by_type(_has_wide_type(value))


# The engine evaluates the results of the following functions only when it analyzes a query.


def _has_wide_type(value: Column) -> Column:
    digits = _type_precision(value) - _type_scale(value) + _preferred_scale(value)
    return F.coalesce(digits > _MAX_DIGITS - _SUM_DIGITS, F.lit(False))


def _mean_type(value: Column) -> Column:
    """Return the type of the mean of a wide DECIMAL column, as SQL text."""
    room = _MAX_DIGITS - (_type_precision(value) - _type_scale(value))
    scale = F.coalesce(F.least(_preferred_scale(value), room), F.lit(0))
    return F.concat(F.lit(f"decimal({_MAX_DIGITS}, "), scale.cast("string"), F.lit(")"))


def _preferred_scale(value: Column) -> Column:
    return F.greatest(F.lit(6), _type_scale(value) + 2)


def _type_precision(value: Column) -> Column:
    return _type_parameter(value, 1)


def _type_scale(value: Column) -> Column:
    return _type_parameter(value, 2)


def _type_parameter(value: Column, number: int) -> Column:
    """Return the precision (`number` 1) or scale (2) of a DECIMAL column; null for other types."""
    text = F.regexp_extract(F.typeof(value), r"^decimal\((\d+),(\d+)\)$", number)
    return text.try_cast("int")
