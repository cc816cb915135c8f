"""A source connector for Delta tables that another program writes."""

from tidemark_streaming.delta.connector import CHANGE, DeltaConnector

__all__ = ["CHANGE", "DeltaConnector"]
