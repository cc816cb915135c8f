"""The connector of the readings."""

from helpers.data.landing import SOURCE, connector
from tidemark.connectors import Ingestion

ingestion = Ingestion(source=SOURCE, connector=connector)
