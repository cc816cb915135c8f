"""The sources, and the sources that are derived from them."""

from pyspark.sql import DataFrame

from tidemark.derive import Between, join, row_asset
from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

_WATERMARK = BoundedOutOfOrderness("10 minutes")

orders = Source(
    name="orders",
    columns={"ordered_at": "TIMESTAMP", "city": "STRING", "amount": "DOUBLE"},
    event_time="ordered_at",
    watermark=_WATERMARK,
)
payments = Source(
    name="payments",
    columns={"paid_at": "TIMESTAMP", "city": "STRING", "paid": "DOUBLE"},
    event_time="paid_at",
    watermark=_WATERMARK,
)
clicks = Source(
    name="clicks",
    columns={"at": "TIMESTAMP", "city": "STRING", "seconds": "DOUBLE"},
    event_time="at",
    watermark=_WATERMARK,
)
paid_orders = join(
    name="paid_orders",
    left=orders,
    right=payments,
    on=["city"],
    within=Between("0 minutes", "1 hour"),
    how="left",
)


@row_asset(source=orders, columns={"ordered_at": "TIMESTAMP", "city": "STRING", "cents": "BIGINT"})
def orders_in_cents(orders: DataFrame) -> DataFrame:
    """Orders of more than nothing, in cents."""
    return orders.selectExpr("*", "CAST(amount * 100 AS BIGINT) AS cents").where("cents > 0")
