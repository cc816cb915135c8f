"""How the sales come in."""

from benchmarks.sales.sources import sales
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaConnector

inlet = Inlet(source=sales, feed=lambda _: KafkaConnector(sales, topics=[sales.name]))
