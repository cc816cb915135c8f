"""The warehouse, for programs that read its tables."""

from tidemark.store.warehouse import Warehouse

__all__ = ["Warehouse"]
