"""The warehouse, for who reads its tables in a program."""

from tidemark.store.warehouse import Warehouse

__all__ = ["Warehouse"]
