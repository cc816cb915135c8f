"""The connector: it reads CSV files in `landing/orders`, each of which is one arrival."""

from pathlib import Path

from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector

from shop.sources import orders


def _connector(landing: Path) -> FileConnector:
    # Times without an offset, such as 2026-01-31 09:30, are in this zone.
    options: dict[str, str | bool] = {"header": True, "timeZone": "UTC"}
    return FileConnector(orders, landing, format="csv", options=options)


ingestion = Ingestion(source=orders, connector=_connector)
