"""The connector of the numbered events."""

from numbered.sources import numbers
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector

TOPIC = "numbers"
inlet = Inlet(source=numbers, feed=lambda _: KafkaConnector(numbers, topics=[TOPIC]))
