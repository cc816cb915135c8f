"""The connector of the sales."""

from benchmarks.sales.sources import sales
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector

ingestion = Ingestion(source=sales, connector=lambda _: KafkaConnector(sales, topics=[sales.name]))
