"""How the clicks come in."""

from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector
from topics import CLICKS

inlet = Inlet(source=CLICKS, feed=lambda _: KafkaConnector(CLICKS, ["clicks"]))
