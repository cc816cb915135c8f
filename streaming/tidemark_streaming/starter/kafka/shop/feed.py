"""The connector: it reads JSON objects from the Kafka topic `orders`."""

from pathlib import Path

from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector

from shop.sources import orders


def _feed(_: Path) -> KafkaConnector:
    return KafkaConnector(orders, topics=["orders"])


inlet = Inlet(source=orders, feed=_feed)
