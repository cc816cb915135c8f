"""The connector of the orders."""

from private.sources import orders
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector

TOPIC = "private_orders"
inlet = Inlet(orders, lambda _: KafkaConnector(orders, [TOPIC], correlation="trace"))
