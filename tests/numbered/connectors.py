"""The connector of the numbered events."""

from numbered.sources import numbers
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector

TOPIC = "numbers"
ingestion = Ingestion(source=numbers, connector=lambda _: KafkaConnector(numbers, topics=[TOPIC]))
