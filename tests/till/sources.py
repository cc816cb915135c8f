"""Orders and payments, and the sources that are computed from them."""

from pyspark.sql import DataFrame

import tidemark as tm

orders = tm.Source(
    name="orders",
    columns={"at": "TIMESTAMP", "order_id": "STRING", "city": "STRING"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
)
payments = tm.Source(
    name="payments",
    columns={"at": "TIMESTAMP", "order_id": "STRING", "amount": "DECIMAL(8,2)"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
)
paid_orders = tm.join(
    name="paid_orders",
    left=orders,
    right=payments,
    on=["order_id"],
    within=tm.Between("-5 minutes", "1 hour"),
    how="left",
    rename={"payments.at": "paid_at", "payments.amount": "paid"},
)
movements = tm.union(name="movements", of=[orders, payments])
located_payments = tm.asof_join(
    name="located_payments",
    left=payments,
    right=orders,
    on=["order_id"],
    rename={"orders.at": "ordered_at"},
)


@tm.row_asset(source=payments, columns={"at": "TIMESTAMP", "order_id": "STRING", "cents": "BIGINT"})
def payments_in_cents(payments: DataFrame) -> DataFrame:
    """Payments of more than nothing, in cents."""
    cents = payments.selectExpr("*", "CAST(amount * 100 AS BIGINT) AS cents")
    return cents.where("cents > 0")
