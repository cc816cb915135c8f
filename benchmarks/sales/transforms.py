"""The transform of the sales."""

from pyspark.sql import DataFrame

import tidemark as tm
from benchmarks.sales.sources import sales


@tm.windowed_asset(
    source=sales,
    keys=["shop"],
    window=tm.Tumbling("10 seconds"),
    allowed_lateness="10 seconds",
    trigger=tm.Trigger(early=tm.EachArrival()),
    aggregates={"takings": tm.agg.sum("amount"), "largest": tm.agg.max("amount")},
    expectations=[tm.expect.not_null("takings"), tm.expect.between("largest", 0, 100)],
)
def sales_by_shop(sales: DataFrame) -> DataFrame:
    """Sales by shop."""
    return sales
