"""The files of orders and payments. Derived sources need no connector."""

from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector
from till import sources

orders = Ingestion(
    sources.orders, lambda landing: FileConnector(sources.orders, landing, format="json")
)
payments = Ingestion(
    sources.payments, lambda landing: FileConnector(sources.payments, landing, format="json")
)
