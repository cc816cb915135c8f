"""The connector: it reads CSV files in `landing/orders`, each of which is one arrival."""

from tidemark.connectors import FileConnector, Ingestion

from shop.sources import orders


def _connector(landing: str) -> FileConnector:
    return FileConnector(orders, landing, format="csv", options={"header": True})


ingestion = Ingestion(source=orders, connector=_connector)
