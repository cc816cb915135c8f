"""The connectors of the sources."""

import os

from tidemark.connectors import FileConnector, Ingestion, KafkaConnector

from .sources import clicks, orders, payments


def _order_files(landing: str) -> FileConnector:
    return FileConnector(orders, landing, format="csv", options={"header": True})


def _payment_files(landing: str) -> FileConnector:
    return FileConnector(payments, landing, format="csv", options={"header": True})


def _click_topic(_: str) -> KafkaConnector:
    topic = os.environ.get("MARKET_TOPIC", "clicks")
    return KafkaConnector(clicks, topics=[topic], servers=os.environ.get("MARKET_SERVERS"))


order_files = Ingestion(source=orders, connector=_order_files)
payment_files = Ingestion(source=payments, connector=_payment_files)
click_topic = Ingestion(source=clicks, connector=_click_topic)
