"""Deduplication for definitions."""

from tidemark.define.uniqueness import Unique

__all__ = ["Unique"]
