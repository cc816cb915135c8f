"""The transform of the clicks."""

from helpers.data import support
from helpers.kafka.topics import CLICKS
from tidemark import aggregate as agg
from tidemark.transform import WindowedTransform
from tidemark.window import Tumbling
from tidemark_streaming.kafka import KafkaSink

clicks_by_10s = WindowedTransform(
    name="clicks_by_10s",
    description="Clicks by partition and ten seconds.",
    source=CLICKS,
    keys=("kafka_partition",),
    window=Tumbling("10 seconds"),
    allowed_lateness=support.MINUTE,
    accumulation="accumulating",
    aggregates={"n": agg.count()},
    function=support.same,
    sink=KafkaSink("clicks_counted"),
)
