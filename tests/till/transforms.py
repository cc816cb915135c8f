"""Assets over derived sources."""

from pyspark.sql import DataFrame

from tidemark import aggregate as agg
from tidemark.derive import chain
from tidemark.transform import windowed_asset
from tidemark.window import Tumbling
from till.sources import movements, orders, paid_orders


@windowed_asset(
    source=paid_orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"orders": agg.count(), "unpaid": agg.count(where="paid IS NULL")},
)
def unpaid_hourly(paid_orders: DataFrame) -> DataFrame:
    """Count orders without a payment by city and hour."""
    return paid_orders


@windowed_asset(
    source=movements,
    keys=["origin"],
    window=Tumbling("1 hour"),
    aggregates={"n": agg.count(), "paid": agg.sum("amount")},
)
def movements_hourly(movements: DataFrame) -> DataFrame:
    """Count orders and payments by hour."""
    return movements


@windowed_asset(
    source=orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"orders": agg.count()},
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Count orders by city and hour."""
    return orders


hours = chain(name="hours", of=orders_hourly)


@windowed_asset(
    source=hours,
    keys=["city"],
    window=Tumbling("1 day"),
    aggregates={"busiest": agg.max("orders"), "active_hours": agg.count()},
)
def busiest_hours(hours: DataFrame) -> DataFrame:
    """Find the orders of the busiest hour of each day."""
    return hours
