"""Deduplication for definitions: `from tidemark.duplicate import Deduplicate`."""

from tidemark.define.uniqueness import Deduplicate

__all__ = ["Deduplicate"]
