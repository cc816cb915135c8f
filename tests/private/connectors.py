"""The connector of the orders."""

from private.sources import orders
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector

TOPIC = "private_orders"
ingestion = Ingestion(orders, lambda _: KafkaConnector(orders, [TOPIC], correlation="trace"))
