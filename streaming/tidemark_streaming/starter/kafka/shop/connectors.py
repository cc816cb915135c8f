"""The connector: it reads JSON objects from the Kafka topic `orders`."""

from tidemark.connectors import Ingestion, KafkaConnector

from shop.sources import orders


def _connector(_: str) -> KafkaConnector:
    return KafkaConnector(orders, topics=["orders"])


ingestion = Ingestion(source=orders, connector=_connector)
