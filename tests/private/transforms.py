"""The transform of the orders, with the columns that the starter's mart reads and more."""

from pyspark.sql import DataFrame

from private.sources import orders
from tidemark import aggregate as agg
from tidemark.quality import between, matches_log
from tidemark.transform import windowed_asset
from tidemark.window import Tumbling
from tidemark_streaming.kafka import KafkaSink

PANES = "private_panes"


@windowed_asset(
    source=orders,
    keys=["city", "email"],
    window=Tumbling("1 hour"),
    allowed_lateness="1 hour",
    aggregates={
        "total": agg.sum("amount"),
        "mean": agg.mean("amount"),
        "highest": agg.max("amount"),
        "card": agg.max("card"),
        "ssn": agg.max("ssn"),
        "keys": agg.count_distinct("kafka_key"),
    },
    accumulation="retracting",
    expectations=[matches_log(), between("highest", 0, 100)],
    sink=KafkaSink(PANES),
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Sum the orders of each customer by city and hour."""
    return orders
