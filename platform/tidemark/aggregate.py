"""Aggregates that merge: partial, merge, finish.

A partial says what a set of events contributes; partials of disjoint sets merge into the partial
of their union, in any order; finish turns a partial into the answer. Because they merge, the same
aggregate serves a batch, a stream that adds a little at a time, and a roll-up of small windows
into large ones. Whatever has no such form (a median over all values, say) is refused where it is
defined.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Aggregate:
    """A combiner.

    Args:
        name: how the aggregate is called in messages and metadata, as in `mean(dep_delay)`.
        partial: from nothing, an aggregate expression over event rows.
        merge: from a column of partials, an aggregate expression over partials.
        finish: from a merged partial, its value.
    """

    name: str
    partial: Callable[[], Column]
    merge: Callable[[Column], Column]
    finish: Callable[[Column], Column]

    def __str__(self) -> str:
        return self.name


def count(where: str | None = None) -> Aggregate:
    """How many events there are, or how many of which `where` (a SQL condition) is true."""
    return Aggregate(
        _name("count", "*", where), lambda: F.count(_values("1", where)), _total, _same
    )


def sum(column: str, where: str | None = None) -> Aggregate:
    """The sum of a SQL expression's values that are not null; null where there are none."""
    return Aggregate(
        _name("sum", column, where), lambda: F.sum(_values(column, where)), F.sum, _same
    )


def min(column: str, where: str | None = None) -> Aggregate:
    """The least value of a SQL expression."""
    return Aggregate(
        _name("min", column, where), lambda: F.min(_values(column, where)), F.min, _same
    )


def max(column: str, where: str | None = None) -> Aggregate:
    """The greatest value of a SQL expression."""
    return Aggregate(
        _name("max", column, where), lambda: F.max(_values(column, where)), F.max, _same
    )


def mean(column: str, where: str | None = None) -> Aggregate:
    """The arithmetic mean of a SQL expression's values that are not null.

    Its partial is the pair (sum, count). The mean of decimals is exact; that of doubles depends
    on the order of addition in the last digits, as in every engine.
    """

    def partial() -> Column:
        values = _values(column, where)
        return F.struct(F.sum(values).alias("sum"), F.count(values).alias("count"))

    def merge(partials: Column) -> Column:
        return F.struct(
            F.sum(partials["sum"]).alias("sum"), _total(partials["count"]).alias("count")
        )

    return Aggregate(
        _name("mean", column, where), partial, merge, lambda p: F.try_divide(p["sum"], p["count"])
    )


def _values(column: str, where: str | None) -> Column:
    # Built when a run asks for it: a definition is read where no engine is at hand.
    value = F.expr(column)
    return value if where is None else F.when(F.expr(where), value)


def _name(function: str, column: str, where: str | None) -> str:
    return f"{function}({column})" + (f" where {where}" if where else "")


def _total(partials: Column) -> Column:
    return F.coalesce(F.sum(partials), F.lit(0))


def _same(partial: Column) -> Column:
    return partial
