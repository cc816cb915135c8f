"""The lane of the clicks."""

from helpers.data.support import same
from helpers.kafka.topics import CLICKS
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.kafka import KafkaConnector, KafkaSink

clicks_on = Lane(
    name="clicks_on",
    connector=KafkaConnector(CLICKS, ["clicks"]),
    prepare=same,
    to=KafkaSink("clicks_at_once"),
)
