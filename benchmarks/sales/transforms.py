"""The transform of the sales."""

from pyspark.sql import DataFrame

from benchmarks.sales.sources import sales
from tidemark import aggregate as agg
from tidemark.quality import between, not_null
from tidemark.transform import windowed_asset
from tidemark.trigger import EachArrival, Trigger
from tidemark.window import Tumbling


@windowed_asset(
    source=sales,
    keys=["shop"],
    window=Tumbling("10 seconds"),
    allowed_lateness="10 seconds",
    trigger=Trigger(early=EachArrival()),
    aggregates={"takings": agg.sum("amount"), "largest": agg.max("amount")},
    expectations=[not_null("takings"), between("largest", 0, 100)],
)
def sales_by_shop(sales: DataFrame) -> DataFrame:
    """Sales by shop."""
    return sales
