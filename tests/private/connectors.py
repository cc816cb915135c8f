"""The connector of the orders."""

from private.sources import orders
from tidemark.connectors import Ingestion, KafkaConnector

TOPIC = "private_orders"
ingestion = Ingestion(orders, lambda _: KafkaConnector(orders, [TOPIC], correlation="trace"))
