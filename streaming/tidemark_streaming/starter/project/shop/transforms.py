"""The windows that are computed from the events."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tidemark import aggregate as agg
from tidemark.quality import between, matches_log, not_null
from tidemark.transform import windowed_asset
from tidemark.window import Tumbling

from shop.sources import orders


@windowed_asset(
    source=orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    # A published window still counts late events until the watermark is this far past its end.
    allowed_lateness="1 hour",
    aggregates={
        "total": agg.sum("amount"),
        "mean": agg.mean("amount"),
        "highest": agg.max("amount"),
    },
    # A window that fails an expectation is quarantined with the reason; a warning is only reported.
    expectations=[
        matches_log(),
        not_null("city"),
        between("highest", 0, 10_000, level="warning"),
    ],
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Sum, mean and maximum of amount, by city and hour."""
    return orders.where(F.col("amount").isNotNull())
