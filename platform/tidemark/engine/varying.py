"""Numbers that differ from run to run, kept out of the code that the engine compiles.

The engine writes a query's whole numbers into the code that it generates for it. A run whose plan
differs from the last one's in its arrivals and watermarks alone is then compiled anew, for as long
as it takes to add up a million events. A decimal it refers to instead: so such a number is given
as one, which is made a whole number where it is used. Unless told otherwise (`compiled_once`)
the optimiser does that once, and the query is the plain one that can be told to files.
"""

from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.engine.requests import Settings
from tidemark.engine.rules import beside

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_FOLDING = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
_ELIMINATION = "spark.sql.subexpressionElimination.enabled"
TOUCHED = (_EXCLUDED, _ELIMINATION)
"""The settings that `compiled_once` changes."""


def compiled_once(own: Settings) -> Settings:
    """Settings with which queries that differ in varying numbers alone are the same code.

    Args:
        own: what the session has: rules that are excluded already stay so.
    """
    # What is taken out of expressions depends on numbers that each query has of its own.
    return {_EXCLUDED: beside(own[_EXCLUDED], _FOLDING), _ELIMINATION: "false"}


def varying(value: int | None) -> Column:
    """A BIGINT that another run has another of."""
    return F.lit(None if value is None else Decimal(value)).cast("bigint")


def varying_sql(value: int) -> str:
    """The same in SQL."""
    return f"CAST({value}BD AS BIGINT)"
