"""The connector: it reads JSON objects from the Kafka topic `orders`."""

from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector

from shop.sources import orders


def _connector(_: str) -> KafkaConnector:
    return KafkaConnector(orders, topics=["orders"])


ingestion = Ingestion(source=orders, connector=_connector)
