"""How the clicks come in."""

from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaFeed
from topics import CLICKS

inlet = Inlet(source=CLICKS, feed=lambda _: KafkaFeed(CLICKS, ["clicks"]))
