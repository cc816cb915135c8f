"""The connector of the readings."""

from helpers.data.landing import SOURCE, connector
from tidemark_streaming.connector import Ingestion

ingestion = Ingestion(source=SOURCE, connector=connector)
