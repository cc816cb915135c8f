"""The connector of the clicks."""

from helpers.kafka.topics import CLICKS
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector

ingestion = Ingestion(source=CLICKS, connector=lambda _: KafkaConnector(CLICKS, ["clicks"]))
