"""How the orders come in."""

from private.sources import orders
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaFeed

TOPIC = "private_orders"
inlet = Inlet(orders, lambda _: KafkaFeed(orders, [TOPIC], correlation="trace"))
