"""A source connector for Delta tables that another program writes."""

from tidemark_streaming.delta.connector import DeltaConnector
from tidemark_streaming.delta.table_checks import CHANGE

__all__ = ["CHANGE", "DeltaConnector"]
