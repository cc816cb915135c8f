"""The connector of the sales."""

from benchmarks.sales.sources import sales
from tidemark.connectors import Ingestion, KafkaConnector

ingestion = Ingestion(source=sales, connector=lambda _: KafkaConnector(sales, topics=[sales.name]))
