"""Aggregates as combiners: a partial, a merge and a finish, each an expression of the engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.define.aggregates.arrow_merge import ArrowMerge
from tidemark.define.aggregates.type_constants import decided_by_type

BOUND = 10_000
"""The default maximum number of values that an aggregate keeps, if its result needs the values
themselves.
"""

_LARGEST_BOUND = 999_999

SLACK = "_slack"
"""A struct column of window rows with a field for each aggregate: the largest difference that two
results computed from the same events can have; null if it is unknown."""

OVERFLOWED = "_overflowed"
"""An array column of window rows: the names of the aggregates whose result is null because it
exceeds its type.
"""

_JSON_VALUE = r'"(?:[^"\\]++|\\.)*+"|[-+0-9.eE]++|true|false'
"""A text, a number or a boolean in JSON.

Names of fields match as texts too. That is harmless: all values of a column have the same fields.
Possessive quantifiers are required: Java's matcher would overflow its stack in a long text.
"""


_ResultType = Callable[[Mapping[str, str]], str | None]
"""A function that takes the types of columns by name, and returns the result's type; None if it is
unknown.
"""


def fixed_type(kind: str) -> _ResultType:
    """Return the `result_type` of an aggregate whose result always has the same type."""
    return lambda _: kind


def type_like(column: str, derive: Callable[[str], str | None] = str) -> _ResultType:
    """Return the `result_type` of an aggregate whose result has a type that depends on a column.

    The type is unknown if the SQL expression is not the name of a column (with or without
    backticks).

    Args:
        derive: takes the column's type and returns the result's type; both are equal by default.
    """
    name = column.strip("`")

    def find_type(types: Mapping[str, str]) -> str | None:
        if name in types:
            return derive(types[name])
        return None

    return find_type


def _unknown_type(types: Mapping[str, str]) -> str | None:
    return None


@checked_class
@dataclass(frozen=True)
class Aggregate:
    """A combiner: an aggregate made of engine expressions, as the functions of this package return.

    Partials are stored in tables and merged repeatedly, so the result of `merge` is a partial too.
    `merge` gets any number of partials, including none; null partials contribute nothing. `finish`
    gets only results of `merge`.

    Example:
        product = agg.Aggregate(
            "product(factor)",
            partial=lambda: F.product("factor"),
            merge=lambda partials: F.product(partials),
            finish=lambda merged: merged,
        )

    Args:
        name: the aggregate's name in messages and metadata, as in `mean(dep_delay)`.
        partial: returns an aggregate expression over event rows. The rows have the columns that the
            transform prepared, `arrival`, `position`, and the event time as
            `_tidemark_happened_at`.
        merge: takes a column of partials, and returns an aggregate expression over the partials.
        finish: takes a merged partial, and returns the result.
        slack: takes a merged partial, and returns the largest difference that two DOUBLE results
            computed from the same events can have. Without it, parity allows 1e-9 of the result.
        overflowed: takes a merged partial, and returns whether the result is null because it
            exceeds its type. If so, the window is quarantined.
        number: returns an expression over event rows. An asset is refused if the expression does
            not have a numeric type. By default, the engine decides which types the aggregate
            accepts, and may convert strings.
        result_type: takes the types of the source's columns, and returns the type of the result, or
            None if only the engine knows it. A chain needs this type.
        signed: takes the name of the BOOLEAN column that marks retractions, and returns an
            aggregate that subtracts them; a retraction takes back an earlier row. None if the
            aggregate can't subtract.
        arrow_merge: merges and finishes partials in memory, like `merge` and `finish`. None if only
            the engine can merge them, which is slower for a few windows. If you replace `merge` or
            `finish` of an aggregate, replace `arrow_merge`, too.
    """

    name: str
    partial: Callable[[], Column]
    merge: Callable[[Column], Column]
    finish: Callable[[Column], Column]
    slack: Callable[[Column], Column] | None = None
    overflowed: Callable[[Column], Column] | None = None
    number: Callable[[], Column] | None = None
    result_type: _ResultType = field(default=_unknown_type, metadata={"identifies": False})
    signed: Callable[[str], "Aggregate"] | None = field(
        default=None, metadata={"identifies": False}
    )
    arrow_merge: ArrowMerge | None = field(default=None, metadata={"identifies": False})

    def __post_init__(self) -> None:
        if self.arrow_merge is None:
            return
        if (self.slack is None) != (self.arrow_merge.slack is None):
            raise DefinitionError(
                f"Aggregate '{self.name}': `slack` and the `slack` of `arrow_merge` must be given "
                "together, because they compute the same values."
            )

    def __str__(self) -> str:
        return self.name


def select_values(column: str, where: str | None) -> Column:
    """Return the values of a SQL expression; null for rows for which the condition is not true."""
    # Expressions are built only when a run needs them: a definition may be read without an engine.
    value = F.expr(column)
    if where is None:
        return value
    return F.when(F.expr(where), value)


def hash_identity(value: Column) -> Column:
    """Return a 64-bit hash that distinguishes values of any type; null for null.

    0.0 and -0.0 have the same hash, and so have all NaNs. The engine's own hash skips nulls,
    including nulls within arrays and structs, and ignores where a nested array begins. Arrays and
    structs are therefore hashed with their shape: their JSON, with `v` instead of each value.
    """
    nested = decided_by_type(F.typeof(value).rlike("^(array|struct)"))
    json = F.to_json(F.struct(value.alias("v")), {"ignoreNullFields": "false"})
    shape = F.regexp_replace(json, _JSON_VALUE, "v")
    return F.when(
        value.isNotNull(), F.when(nested, F.xxhash64(value, shape)).otherwise(F.xxhash64(value))
    )


def call_name(
    function: str, column: str, where: str | None, *further: object, **bounds: int
) -> str:
    """Return the name of a call: `top_k(carrier, 3, max_values=50) where distance > 100`."""
    arguments = [column]
    arguments += map(str, further)
    for name, value in bounds.items():
        if value != BOUND:
            arguments.append(f"{name}={value}")
    call = f"{function}({', '.join(arguments)})"
    if where:
        return f"{call} where {where}"
    return call


def identity_finish(partial: Column) -> Column:
    """Return the partial itself: the `finish` of an aggregate whose partial is its result."""
    return partial


def no_slack(partial: Column) -> Column:
    """Return 0.0: the `slack` of an aggregate for which the order of merging is irrelevant."""
    return F.lit(0.0)


def check_number(
    function: str, argument: str, number: object, minimum: int = 1, maximum: int = _LARGEST_BOUND
) -> None:
    """Refuse a value that is not a whole number from `minimum` to `maximum`."""
    if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
        raise DefinitionError(
            f"The '{argument}' of {function} must be a whole number from {minimum:,} to "
            f"{maximum:,} (got {number!r})."
        )
