"""Deduplication for definitions."""

from tidemark.define.uniqueness import Deduplicate

__all__ = ["Deduplicate"]
