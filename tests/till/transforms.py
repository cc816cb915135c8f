"""Assets over derived sources."""

from pyspark.sql import DataFrame

import tidemark as tm
from till.sources import movements, orders, paid_orders


@tm.windowed_asset(
    source=paid_orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"orders": tm.agg.count(), "unpaid": tm.agg.count(where="paid IS NULL")},
)
def unpaid_hourly(paid_orders: DataFrame) -> DataFrame:
    """Count orders without a payment by city and hour."""
    return paid_orders


@tm.windowed_asset(
    source=movements,
    keys=["origin"],
    window=tm.Tumbling("1 hour"),
    aggregates={"n": tm.agg.count(), "paid": tm.agg.sum("amount")},
)
def movements_hourly(movements: DataFrame) -> DataFrame:
    """Count orders and payments by hour."""
    return movements


@tm.windowed_asset(
    source=orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"orders": tm.agg.count()},
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Count orders by city and hour."""
    return orders


hours = tm.chain(name="hours", of=orders_hourly)


@tm.windowed_asset(
    source=hours,
    keys=["city"],
    window=tm.Tumbling("1 day"),
    aggregates={"busiest": tm.agg.max("orders"), "active_hours": tm.agg.count()},
)
def busiest_hours(hours: DataFrame) -> DataFrame:
    """Find the orders of the busiest hour of each day."""
    return hours
