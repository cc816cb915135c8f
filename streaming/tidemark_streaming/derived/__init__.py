"""The connector of derived sources, which reads the event logs of their bases."""

from tidemark_streaming.derived.connector import DerivedConnector, ingestion_of

__all__ = ["DerivedConnector", "ingestion_of"]
