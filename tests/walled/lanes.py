"""And at once."""

from support import same
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.lane import Lane
from topics import CLICKS

clicks_on = Lane(
    name="clicks_on",
    feed=KafkaConnector(CLICKS, ["clicks"]),
    prepare=same,
    to=KafkaSink("clicks_at_once"),
)
