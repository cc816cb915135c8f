"""Keep numbers that differ between runs out of the code that the engine compiles.

The engine writes whole numbers of a query into its generated code. A run whose plan differs from
the previous one only in arrivals and watermarks is then compiled again, which takes as long as
aggregating a million events. Decimals are referenced instead of written into the code. So such a
number is passed as a decimal and cast to a whole number. The optimizer folds that cast once, which
gives the plain query and allows pushdown to files. `planning.share_compiled_code` turns the
folding off.
"""

from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F


def uncompiled_literal(value: int | None) -> Column:
    """Return a BIGINT literal whose value differs between runs."""
    return F.lit(None if value is None else Decimal(value)).cast("bigint")


def uncompiled_literal_sql(value: int) -> str:
    return f"CAST({value}BD AS BIGINT)"
