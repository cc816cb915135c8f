"""The assets: one of each kind."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark import aggregate as agg
from tidemark.derive import chain
from tidemark.quality import between, matches_log, not_null
from tidemark.rollup import rollup
from tidemark.transform import windowed_asset
from tidemark.window import Session, Tumbling

from .sources import clicks, orders, orders_in_cents, paid_orders
from .tax import add_tax


@windowed_asset(
    source=orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    allowed_lateness="1 hour",
    aggregates={
        "total": agg.sum("amount"),
        "mean": agg.mean("amount"),
        "highest": agg.max("amount"),
    },
    expectations=[matches_log(), not_null("city"), between("highest", 0, 10_000)],
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Orders by city and hour."""
    return orders


orders_daily = rollup(of=orders_hourly, name="orders_daily", window=Tumbling("1 day"))
hours = chain(name="hours", of=orders_hourly)


@windowed_asset(
    source=hours,
    keys=["city"],
    window=Tumbling("1 day"),
    aggregates={"busiest": agg.max("total")},
)
def busiest_hours(hours: DataFrame) -> DataFrame:
    """The busiest hour of a day, by city."""
    return hours


@windowed_asset(
    source=orders,
    keys=["city"],
    window=Session("30 minutes"),
    aggregates={"orders": agg.count(), "total": agg.sum("amount")},
)
def order_sessions(orders: DataFrame) -> DataFrame:
    """Orders that follow each other within half an hour, by city."""
    return orders


@windowed_asset(
    source=orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"gross": agg.sum("gross")},
)
def orders_taxed(orders: DataFrame) -> DataFrame:
    """Orders with tax, which a function of the project adds."""
    return orders.withColumn("gross", F.udf(add_tax, "double")("amount"))


@windowed_asset(
    source=paid_orders,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"orders": agg.count(), "unpaid": agg.count(where="right_arrival IS NULL")},
)
def unpaid_hourly(paid_orders: DataFrame) -> DataFrame:
    """Orders without a payment, by city and hour."""
    return paid_orders


@windowed_asset(
    source=orders_in_cents,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"cents": agg.sum("cents")},
)
def cents_hourly(orders_in_cents: DataFrame) -> DataFrame:
    """Cents by city and hour."""
    return orders_in_cents


@windowed_asset(
    source=clicks,
    keys=["city"],
    window=Tumbling("1 hour"),
    aggregates={"seconds": agg.sum("seconds")},
)
def clicks_hourly(clicks: DataFrame) -> DataFrame:
    """Clicks by city and hour."""
    return clicks
