"""Transforms of a kiosk's orders: valid ones, and some that a scenario refuses."""

from itertools import count as counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidemark as tm
from tidemark.define.rollup import rollup

_ORDER = {"at": "TIMESTAMP", "shop": "STRING", "item": "INT", "amount": "DECIMAL(8,2)"}

orders = tm.Source(
    name="orders",
    columns={**_ORDER, "tags": "ARRAY<STRING>"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
)
guarded = tm.Source(
    name="guarded",
    columns={"at": "TIMESTAMP"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
    max_future_skew="5 minutes",
)
priced = tm.Source(
    name="priced",
    columns={"at": "TIMESTAMP", "item": "INT"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
    lookups=("lists/prices",),
)


@tm.windowed_asset(
    source=orders,
    keys=["town"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="1 hour",
    accumulation="retracting",
    aggregates={
        "orders": tm.agg.count(),
        "taken": tm.agg.sum("amount"),
        "most": tm.agg.max("amount"),
    },
)
def orders_per_hour(orders: DataFrame) -> DataFrame:
    """Count orders and their amounts by town and hour."""
    return orders.where("amount > 0").withColumn("town", F.upper(F.split("shop", "-")[0]))


@tm.windowed_asset(
    source=priced,
    window=tm.Tumbling("1 hour"),
    aggregates={"taken": tm.agg.sum("price")},
)
def takings(orders: DataFrame, prices: DataFrame) -> DataFrame:
    """Sum the prices of orders by hour."""
    return orders.join(prices, "item")


@tm.windowed_asset(source=guarded, window=tm.Tumbling("1 hour"), aggregates={"n": tm.agg.count()})
def believed(orders: DataFrame) -> DataFrame:
    """Count orders without a future timestamp by hour."""
    return orders


_NUMBERS = counter()


@tm.windowed_asset(
    source=orders, window=tm.Tumbling("1 hour"), aggregates={"sum": tm.agg.sum("number")}
)
def numbered(orders: DataFrame) -> DataFrame:
    """Number the events of a run, which makes results depend on the run: this is invalid."""
    number = F.udf(lambda _: next(_NUMBERS), "INT")
    return orders.withColumn("number", number("at"))


orders_per_day = rollup(of=orders_per_hour, name="orders_per_day", window=tm.Tumbling("1 day"))
