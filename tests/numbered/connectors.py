"""The connector of the numbered events."""

from numbered.sources import numbers
from tidemark.connectors import Ingestion, KafkaConnector

TOPIC = "numbers"
ingestion = Ingestion(source=numbers, connector=lambda _: KafkaConnector(numbers, topics=[TOPIC]))
