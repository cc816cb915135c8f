"""The assets: one of each kind."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidemark as tm

from .sources import clicks, orders, orders_in_cents, paid_orders
from .tax import add_tax


@tm.windowed_asset(
    source=orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="1 hour",
    aggregates={
        "total": tm.agg.sum("amount"),
        "mean": tm.agg.mean("amount"),
        "highest": tm.agg.max("amount"),
    },
    expectations=[
        tm.expect.matches_log(),
        tm.expect.not_null("city"),
        tm.expect.between("highest", 0, 10_000),
    ],
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Orders by city and hour."""
    return orders


orders_two_hourly = tm.rollup(
    of=orders_hourly, name="orders_two_hourly", window=tm.Tumbling("2 hours")
)
hours = tm.chain(name="hours", of=orders_hourly)


@tm.windowed_asset(
    source=hours,
    keys=["city"],
    window=tm.Tumbling("2 hours"),
    aggregates={"busiest": tm.agg.max("total")},
)
def busiest_hours(hours: DataFrame) -> DataFrame:
    """The busier one of two hours, by city."""
    return hours


@tm.windowed_asset(
    source=orders,
    keys=["city"],
    window=tm.Session("30 minutes"),
    aggregates={"orders": tm.agg.count(), "total": tm.agg.sum("amount")},
)
def order_sessions(orders: DataFrame) -> DataFrame:
    """Orders that follow each other within half an hour, by city."""
    return orders


@tm.windowed_asset(
    source=orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"gross": tm.agg.sum("gross")},
)
def orders_taxed(orders: DataFrame) -> DataFrame:
    """Orders with tax, which a function of the project adds."""
    return orders.withColumn("gross", F.udf(add_tax, "double")("amount"))


@tm.windowed_asset(
    source=paid_orders,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"orders": tm.agg.count(), "unpaid": tm.agg.count(where="right_arrival IS NULL")},
)
def unpaid_hourly(paid_orders: DataFrame) -> DataFrame:
    """Orders without a payment, by city and hour."""
    return paid_orders


@tm.windowed_asset(
    source=orders_in_cents,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"cents": tm.agg.sum("cents")},
)
def cents_hourly(orders_in_cents: DataFrame) -> DataFrame:
    """Cents by city and hour."""
    return orders_in_cents


@tm.windowed_asset(
    source=clicks,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"seconds": tm.agg.sum("seconds")},
)
def clicks_hourly(clicks: DataFrame) -> DataFrame:
    """Clicks by city and hour."""
    return clicks
