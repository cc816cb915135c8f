"""The connector of derived sources, which reads the event logs of their bases."""

from tidemark_streaming.derived.connector import DerivedConnector

__all__ = ["DerivedConnector"]
