"""Expressions that depend on the types of columns, which only the engine knows.

`typeof` returns the type of a column as text. However, a query that is executed must not contain
`typeof`: the code that Spark 4.2 generates for it can't be compiled, so the engine interprets the
query, ten times more slowly. The optimizer usually replaces `typeof` by a constant, but not in
queries that share compiled code (`engine.queries.planning`). The functions of this module therefore
use `typeof` only where the engine evaluates it while it analyzes a query.
"""

from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as F


def decided_by_type(condition: Column) -> Column:
    """Return a condition on `typeof` of columns as a constant.

    The condition chooses the field that `date_part` returns. The engine evaluates this choice when
    it analyzes the query: the result is either the function `year` or null. The optimizer makes
    true or false of the comparison, even if it folds no constants. It therefore also removes the
    aggregate functions in a branch that is not taken.
    """
    day = F.lit(date(2000, 1, 1))
    return F.coalesce(F.date_part(F.when(condition, "year"), day) == F.year(day), F.lit(False))


def with_type(value: Column, kind: Column) -> Column:
    """Convert a value from JSON to a type that may depend on the types of columns.

    `from_json` accepts the type as an expression, which the engine evaluates when it analyzes the
    query. A cast accepts only a fixed type.

    Args:
        value: the value as JSON text; a null gives null.
        kind: the type as SQL text, which may be computed from `typeof` of columns.
    """
    json = F.concat(F.lit('{"value": '), value, F.lit("}"))
    return F.from_json(json, F.concat(F.lit("value "), kind))["value"]
