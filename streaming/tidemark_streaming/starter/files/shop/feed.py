"""The connector: it reads CSV files in `landing/orders`, each of which is one arrival."""

from pathlib import Path

from tidemark_streaming.feed import Inlet
from tidemark_streaming.files import FileConnector

from shop.sources import orders


def _feed(landing: Path) -> FileConnector:
    return FileConnector(orders, landing, format="csv", options={"header": True})


inlet = Inlet(source=orders, feed=_feed)
