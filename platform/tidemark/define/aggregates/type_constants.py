"""Decisions by the type of a column.

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
