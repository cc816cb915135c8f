"""Uniqueness, as definitions name it."""

from tidemark.define.uniqueness import Unique

__all__ = ["Unique"]
