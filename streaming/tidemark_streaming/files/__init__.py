"""A source connector for files in a folder."""

from tidemark_streaming.files.connector import FileConnector

__all__ = ["FileConnector"]
