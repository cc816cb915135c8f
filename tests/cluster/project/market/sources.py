"""The sources, and the sources that are derived from them."""

from pyspark.sql import DataFrame

import tidemark as tm

_WATERMARK = tm.BoundedOutOfOrderness("10 minutes")

orders = tm.Source(
    name="orders",
    columns={"ordered_at": "TIMESTAMP", "city": "STRING", "amount": "DOUBLE"},
    event_time="ordered_at",
    watermark=_WATERMARK,
)
payments = tm.Source(
    name="payments",
    columns={"paid_at": "TIMESTAMP", "city": "STRING", "paid": "DOUBLE"},
    event_time="paid_at",
    watermark=_WATERMARK,
)
clicks = tm.Source(
    name="clicks",
    columns={"at": "TIMESTAMP", "city": "STRING", "seconds": "DOUBLE"},
    event_time="at",
    watermark=_WATERMARK,
)
paid_orders = tm.join(
    name="paid_orders",
    left=orders,
    right=payments,
    on=["city"],
    within=tm.Between("0 minutes", "1 hour"),
    how="left",
)


@tm.row_asset(
    source=orders, columns={"ordered_at": "TIMESTAMP", "city": "STRING", "cents": "BIGINT"}
)
def orders_in_cents(orders: DataFrame) -> DataFrame:
    """Orders of more than nothing, in cents."""
    return orders.selectExpr("*", "CAST(amount * 100 AS BIGINT) AS cents").where("cents > 0")
