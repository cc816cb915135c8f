"""The connector of the clicks."""

from helpers.kafka.topics import CLICKS
from tidemark.connectors import Ingestion, KafkaConnector

ingestion = Ingestion(source=CLICKS, connector=lambda _: KafkaConnector(CLICKS, ["clicks"]))
