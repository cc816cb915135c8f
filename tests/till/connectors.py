"""The files of orders and payments. Derived sources need no connector."""

from tidemark.connectors import FileConnector, Ingestion
from till import sources

orders = Ingestion(
    sources.orders, lambda landing: FileConnector(sources.orders, landing, format="json")
)
payments = Ingestion(
    sources.payments, lambda landing: FileConnector(sources.payments, landing, format="json")
)
