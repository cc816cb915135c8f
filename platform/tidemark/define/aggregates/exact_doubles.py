"""Exact sums of DOUBLE values, from which values can be subtracted.

A sum of doubles is rounded, so a large value that is subtracted again leaves a trace: 1e16 + 1.0 -
1e16 is 0.0. Each value is therefore represented by a *bin*, which follows from its magnitude, and
an integer number of the bin's units. Integers are added and subtracted exactly, so a sum depends
only on the values that were not taken back, in any order of addition.

A value x in bin b has 2^(8b) <= |x| < 2^(8b + 8). The unit of the bin is 2^(8b - 53). Then each
value is a whole number of units, of at most 62 bits, even if the computed logarithm is off by one.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

_BITS = 8
"""The number of powers of two in a bin."""
_UNIT_BITS = 53
"""The unit of a bin is the lower end of the bin, divided by two to this power."""
_INTEGER = "decimal(38,0)"


def partial(value: Column, sign: Column) -> Column:
    """Return an aggregate expression that sums finite doubles exactly, as an array of bins.

    Each item is a struct of `bin` (INT), the number of the bin, and `units` (DECIMAL(38,0)), the
    sum in units of this bin. The items are in ascending order, without bins of 0 units. `merge`
    combines such arrays, and `sum_bins` converts one to a double.

    Args:
        value: the DOUBLE values to sum; null values are ignored.
        sign: 1 for values to add, -1 for values to subtract.
    """
    magnitude = F.floor(F.log2(F.abs(value)))
    number = F.floor(magnitude / _BITS).cast("int")
    units = (
        _multiply_by_power(value, F.lit(_UNIT_BITS) - _BITS * number).cast("bigint").cast(_INTEGER)
    )
    part = F.struct(number.alias("bin"), (units * sign).cast(_INTEGER).alias("units"))
    return _merge_bins(F.collect_list(F.when(value != 0, part)))


def merge(partials: Column) -> Column:
    return _merge_bins(F.flatten(F.collect_list(partials)))


def sum_bins(bins: Column) -> Column:
    """Return the sum, a DOUBLE: 0 without values."""

    def add_part(sum_so_far: Column, part: Column) -> Column:
        return sum_so_far + _multiply_by_power(
            part["units"].cast("double"), _BITS * part["bin"] - _UNIT_BITS
        )

    # The order of the bins is fixed, so the sum is the same for the same values.
    return F.aggregate(bins, F.lit(0.0), add_part)


def _merge_bins(parts: Column) -> Column:
    """Return bins with one entry each, in ascending order, without empty ones."""

    def add_part(bins: Column, part: Column) -> Column:
        last = F.get(bins, F.size(bins) - 1)
        units = (last["units"] + part["units"]).cast(_INTEGER)
        both = F.struct(part["bin"].alias("bin"), units.alias("units"))
        preceding = F.slice(bins, 1, F.size(bins) - 1)
        joined = F.concat(preceding, F.array(both))
        appended = F.concat(bins, F.array(part))
        return F.when(last["bin"] == part["bin"], joined).otherwise(appended)

    none = F.array().cast(f"array<struct<bin: int, units: {_INTEGER}>>")
    bins = F.aggregate(F.array_sort(parts), none, add_part)
    return F.filter(bins, lambda part: part["units"] != 0)


def _multiply_by_power(value: Column, power: Column) -> Column:
    """Return a value times two to a power. Both halves of the power are doubles."""
    half = F.floor(power / 2)
    return value * F.pow(F.lit(2.0), half) * F.pow(F.lit(2.0), power - half)
