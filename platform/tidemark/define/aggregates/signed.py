"""Counts, sums and means of rows that may be retractions, which are subtracted.

A retraction repeats an earlier row that no longer holds. The partials have the *net* number of
values: those of rows minus those of retractions. A sum or a mean is null if it is zero.

NaN and the infinities can't be subtracted: their difference is NaN. They are left out of the sums
and counted, so that a sum is finite again when the last of them is retracted.
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.aggregates import means, totals
from tidemark.define.aggregates.combiner import Aggregate, values

_NONFINITE = ("nan", "inf", "-inf")


def signed_count(count: Aggregate, where: str | None, retraction: str) -> Aggregate:
    """Return a count of rows minus retractions."""
    return _subtracting(replace(count, partial=lambda: _net(values("1", where), retraction)))


def signed_sum(total: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    """Return a sum of rows minus retractions."""

    return _subtracting(
        replace(
            total,
            partial=lambda: _partial(totals.partial, values(column, where), retraction),
            merge=lambda partials: _merge(totals.merge, partials),
            finish=lambda p: F.when(p["net"] != 0, totals.total(_with_nonfinite(p))),
            slack=lambda p: totals.total_slack(p["values"]),
            overflowed=lambda p: totals.has_total_overflowed(p["values"]),
        )
    )


def signed_mean(mean: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    """Return the mean of rows minus retractions."""

    def net(merged: Column) -> Column:
        return _with_nonfinite(merged).withField("count", merged["net"])

    return _subtracting(
        replace(
            mean,
            partial=lambda: _partial(means.partial, values(column, where), retraction),
            merge=lambda partials: _merge(means.merge, partials),
            finish=lambda p: means.average(net(p)),
            # Retracted values add to the rounding, too.
            slack=lambda p: (
                means.average_slack(net(p)) * F.try_divide(p["values"]["count"], p["net"])
            ),
        )
    )


def _partial(of_values: Callable[[Column], Column], value: Column, retraction: str) -> Column:
    """Return a partial of finite values, subtracted in retractions, with net numbers of values."""
    double = value.cast("double")
    finite = F.when(F.abs(double) < float("inf"), value)
    own = of_values(F.when(F.col(retraction), -finite).otherwise(finite))
    return F.struct(
        own.alias("values"),
        _net(value, retraction).alias("net"),
        *(
            _net(F.when(double == float(name), value), retraction).alias(name)
            for name in _NONFINITE
        ),
    )


def _merge(of_partials: Callable[[Column], Column], partials: Column) -> Column:
    return F.struct(
        of_partials(partials["values"]).alias("values"),
        *(_sum(partials[name]).alias(name) for name in ("net", *_NONFINITE)),
    )


def _with_nonfinite(merged: Column) -> Column:
    """Return the merged partial of finite values with the sum of all values."""
    nans, plus, minus = (merged[name] for name in _NONFINITE)
    # A retraction of a value has the opposite sign.
    up, down = (plus > 0) | (minus < 0), (minus > 0) | (plus < 0)
    text = F.when((nans != 0) | (up & down), "NaN").when(up, "Infinity").when(down, "-Infinity")
    # The engine knows the type of the sum, but Python does not: JSON with its text as the schema.
    own = merged["values"]["sum"]
    json = F.concat(F.lit('{"sum": "'), text, F.lit('"}'))
    found = F.from_json(json, F.concat(F.lit("sum "), F.typeof(own)))["sum"]
    return merged["values"].withField("sum", F.coalesce(found, own))


def _subtracting(found: Aggregate) -> Aggregate:
    """Return an aggregate that already subtracts retractions, and says so."""
    return replace(found, signed=lambda _: _subtracting(found))


def _net(value: Column, retraction: str) -> Column:
    """Return the number of values that are not null, minus those of retractions."""
    sign = F.when(F.col(retraction), -1).otherwise(1)
    return _sum(F.when(value.isNotNull(), sign))


def _sum(numbers: Column) -> Column:
    return F.coalesce(F.sum(numbers.cast("bigint")), F.lit(0).cast("bigint"))
