"""The transform of the numbered events."""

from pyspark.sql import DataFrame

from numbered.sources import numbers
from tidemark import aggregate as agg
from tidemark.quality import matches_log
from tidemark.transform import windowed_asset
from tidemark.trigger import EachArrival, Trigger
from tidemark.window import Tumbling
from tidemark_streaming.kafka import KafkaSink


@windowed_asset(
    source=numbers,
    keys=["shard"],
    window=Tumbling("10 seconds"),
    allowed_lateness="10 seconds",
    trigger=Trigger(early=EachArrival()),
    accumulation="accumulating",
    aggregates={"counted": agg.count(), "total": agg.sum("n")},
    expectations=[matches_log()],
    sink=KafkaSink("counted", partitions=2),
)
def numbers_counted(numbers: DataFrame) -> DataFrame:
    """Count events and sum their numbers by shard and ten seconds."""
    return numbers.selectExpr("*", "n % 3 AS shard")
