"""The transform of the orders, with the columns that the starter's mart reads and more."""

from pyspark.sql import DataFrame

import tidemark as tm
from private.sources import orders
from tidemark.connectors import KafkaSink

PANES = "private_panes"


@tm.windowed_asset(
    source=orders,
    keys=["city", "email"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="1 hour",
    aggregates={
        "total": tm.agg.sum("amount"),
        "mean": tm.agg.mean("amount"),
        "highest": tm.agg.max("amount"),
        "card": tm.agg.max("card"),
        "ssn": tm.agg.max("ssn"),
        "keys": tm.agg.count_distinct("kafka_key"),
    },
    accumulation="retracting",
    expectations=[tm.expect.matches_log(), tm.expect.between("highest", 0, 100)],
    sink=KafkaSink(PANES),
)
def orders_hourly(orders: DataFrame) -> DataFrame:
    """Sum the orders of each customer by city and hour."""
    return orders
