"""And at once."""

from support import same
from tidemark_streaming.kafka import KafkaFeed, KafkaTopic
from tidemark_streaming.lane import Lane
from topics import CLICKS

clicks_on = Lane(
    name="clicks_on",
    feed=KafkaFeed(CLICKS, ["clicks"]),
    prepare=same,
    to=KafkaTopic("clicks_at_once"),
)
