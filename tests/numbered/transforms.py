"""The transform of the numbered events."""

from pyspark.sql import DataFrame

import tidemark as tm
from numbered.sources import numbers
from tidemark.connectors import KafkaSink


@tm.windowed_asset(
    source=numbers,
    keys=["shard"],
    window=tm.Tumbling("10 seconds"),
    allowed_lateness="10 seconds",
    trigger=tm.Trigger(early=tm.EachArrival()),
    accumulation="accumulating",
    aggregates={"counted": tm.agg.count(), "total": tm.agg.sum("n")},
    expectations=[tm.expect.matches_log()],
    sink=KafkaSink("counted", partitions=2),
)
def numbers_counted(numbers: DataFrame) -> DataFrame:
    """Count events and sum their numbers by shard and ten seconds."""
    return numbers.selectExpr("*", "n % 3 AS shard")
