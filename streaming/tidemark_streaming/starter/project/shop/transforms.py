"""The windows that are computed from the events."""

import tidemark as tm
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shop.sources import orders


@tm.windowed_asset(
    source=orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    # A published window still counts late events until the watermark is this far past its end.
    allowed_lateness="1 hour",
    aggregates={
        "total": tm.agg.sum("amount"),
        "mean": tm.agg.mean("amount"),
        "highest": tm.agg.max("amount"),
    },
    # A window that fails an expectation is quarantined with the reason; a warning is only reported.
    expectations=[
        tm.expect.matches_log(),
        tm.expect.not_null("city"),
        tm.expect.between("highest", 0, 10_000, level="warning"),
    ],
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Sum, mean and maximum of amount, by city and hour."""
    return orders.where(F.col("amount").isNotNull())
