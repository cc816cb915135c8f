"""The transform of the clicks."""

import tidemark as tm
from helpers.data import support
from helpers.kafka.topics import CLICKS
from tidemark.connectors import KafkaSink

clicks_by_10s = tm.WindowedTransform(
    name="clicks_by_10s",
    description="Clicks by partition and ten seconds.",
    source=CLICKS,
    keys=("kafka_partition",),
    window=tm.Tumbling("10 seconds"),
    allowed_lateness=support.MINUTE,
    accumulation="accumulating",
    aggregates={"n": tm.agg.count()},
    function=support.same,
    sink=KafkaSink("clicks_counted"),
)
