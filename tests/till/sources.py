"""Orders and payments, and the sources that are computed from them."""

from tidemark.derive import Between, join, union
from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

orders = Source(
    name="orders",
    columns={"at": "TIMESTAMP", "order_id": "STRING", "city": "STRING"},
    event_time="at",
    watermark=BoundedOutOfOrderness("10 minutes"),
)
payments = Source(
    name="payments",
    columns={"at": "TIMESTAMP", "order_id": "STRING", "amount": "DECIMAL(8,2)"},
    event_time="at",
    watermark=BoundedOutOfOrderness("10 minutes"),
)
paid_orders = join(
    name="paid_orders",
    left=orders,
    right=payments,
    on=["order_id"],
    within=Between("-5 minutes", "1 hour"),
    how="left",
    rename={"payments.at": "paid_at", "payments.amount": "paid"},
)
movements = union(name="movements", of=[orders, payments])
