"""The connector of the clicks."""

from helpers.kafka.topics import CLICKS
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector

inlet = Inlet(source=CLICKS, feed=lambda _: KafkaConnector(CLICKS, ["clicks"]))
