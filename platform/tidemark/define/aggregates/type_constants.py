"""Decisions by the type of a column, and casts to a type that only the engine knows.

Only the engine knows the types of a transform's columns: `typeof` returns them as text. It must not
be part of a query that is executed. The optimizer usually replaces it by a constant, but not in
queries that share compiled code (`engine.queries.planning`). The code that Spark 4.2 generates for
`typeof` can't be compiled, so that the engine interprets the query, ten times more slowly.
"""

from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as F

_YEAR, _DAY = 2000, 1


def decided_by_type(condition: Column) -> Column:
    """Return a condition on `typeof` of columns as a constant.

    The condition chooses the field that `date_part` returns. The engine evaluates this choice when
    it analyzes the query.
    """
    field = F.when(condition, "year").otherwise("day")
    return F.date_part(field, F.lit(date(_YEAR, 1, _DAY))) == _YEAR


def with_type(value: Column, kind: Column) -> Column:
    """Return a value with a type that is given as SQL text, which may contain `typeof` of columns.

    The engine parses the type when it analyzes the query: it is the schema of `from_json`. No cast
    takes a type as text.

    Args:
        value: the value as JSON; null for null.
    """
    json = F.concat(F.lit('{"value": '), value, F.lit("}"))
    return F.from_json(json, F.concat(F.lit("value "), kind))["value"]
