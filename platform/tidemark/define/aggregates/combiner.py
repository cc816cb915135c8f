"""What every aggregate is: a partial, a merge and a finish, each an expression of the engine."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError

BOUND = 10_000
"""How many values an aggregate keeps that must keep them, unless the definition says otherwise."""

LARGEST_BOUND = 999_999

SLACK = "_slack"
"""A column of windows' rows, a struct: by aggregate, how far apart the values of the same events
can be; null if that is not known."""

OVERFLOWED = "_overflowed"
"""Another one, an array: the aggregates whose value no value of their type can hold, so that it is
null."""

_JSON_VALUE = r'"(?:[^"\\]++|\\.)*+"|[-+0-9.eE]++|true|false'
"""A text, a number or a boolean in JSON. Names of fields are texts too: all values of a column have
the same ones. Possessive, as Java's matcher would overflow its stack in a long text."""


@checked_class
@dataclass(frozen=True)
class Aggregate:
    """A combiner: an aggregate of expressions of the engine. The functions beside it make some.

    Partials are stored in tables and merged again and again: what `merge` gives is a partial too.
    It gets any number of them, none as well, and some may be null, which say nothing. `finish`
    gets only what `merge` gave.

    Example:
        product = agg.Aggregate(
            "product(factor)",
            partial=lambda: F.product("factor"),
            merge=lambda partials: F.product(partials),
            finish=lambda merged: merged,
        )

    Args:
        name: how the aggregate is called in messages and metadata, as in `mean(dep_delay)`.
        partial: from nothing, an aggregate expression over event rows: the columns that the
            transform prepared, `happened_at` (the event time), `arrival` and `position`.
        merge: from a column of partials, an aggregate expression over partials.
        finish: from a merged partial, its value.
        slack: from a merged partial, how far apart the answers can be that the same events give,
            if they are DOUBLE; by default 1e-9 of the answer.
        overflowed: from a merged partial, whether the answer is null because no value of its type
            can hold it. The window is quarantined then.
    """

    name: str
    partial: Callable[[], Column]
    merge: Callable[[Column], Column]
    finish: Callable[[Column], Column]
    slack: Callable[[Column], Column] | None = None
    overflowed: Callable[[Column], Column] | None = None

    def __str__(self) -> str:
        return self.name


def values(column: str, where: str | None) -> Column:
    """A SQL expression's values, null where the condition is not true."""
    # Built when a run asks for it: a definition is read where no engine is at hand.
    value = F.expr(column)
    return value if where is None else F.when(F.expr(where), value)


def identity(value: Column) -> Column:
    """A 64-bit hash that tells values of any type apart; null for null.

    0.0 and -0.0 have one hash, and so has every NaN. The engine's own hash skips nulls, also those
    within arrays and structs, and does not see where a nested array begins. So arrays and structs
    are hashed together with their shape: their JSON, with a `v` in the place of each value.
    """
    # The engine knows a column's type when it plans, and drops the branch that does not apply.
    nested = F.typeof(value).rlike("^(array|struct)")
    json = F.to_json(F.struct(value.alias("v")), {"ignoreNullFields": "false"})
    shape = F.regexp_replace(json, _JSON_VALUE, "v")
    return F.when(
        value.isNotNull(), F.when(nested, F.xxhash64(value, shape)).otherwise(F.xxhash64(value))
    )


def named(function: str, column: str, where: str | None, *others: object, **bound: int) -> str:
    """The name of a call: `top_k(carrier, 3, at_most=50) where distance > 100`."""
    bounds = [f"{name}={value}" for name, value in bound.items() if value != BOUND]
    arguments = ", ".join([column, *map(str, others), *bounds])
    return f"{function}({arguments})" + (f" where {where}" if where else "")


def same(partial: Column) -> Column:
    """The finish of an aggregate whose partial is its answer."""
    return partial


def exactly(partial: Column) -> Column:
    """The slack of an aggregate whose answer is the same in any order."""
    return F.lit(0.0)


def check_number(
    function: str, argument: str, given: object, least: int = 1, most: int = LARGEST_BOUND
) -> None:
    """Refuse a whole number that is none, or out of range."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise DefinitionError(
            f"The '{argument}' of {function} is a whole number from {least:,} to {most:,}, "
            f"not {given!r}."
        )
