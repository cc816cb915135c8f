"""Keep numbers that differ between runs out of the code that the engine compiles.

The engine writes the whole numbers of a query into the code that it generates. The plan of a run
often differs from that of the previous run only in arrivals and watermarks. Such a plan would be
compiled again, which takes as long as aggregating a million events. Decimals are not written into
the generated code, which only references them. The functions here therefore pass a number that
differs between runs as a decimal, and cast it to a whole number. By default, the optimizer folds
the cast into a whole number, which allows pushdown to files. With the settings of
`planning.share_compiled_code`, the optimizer keeps the cast.
"""

from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F


def uncompiled_literal(value: int | None) -> Column:
    """Return a literal of type BIGINT for a number that differs between runs."""
    return F.lit(None if value is None else Decimal(value)).cast("bigint")


def uncompiled_literal_sql(value: int) -> str:
    return f"CAST({value}BD AS BIGINT)"
