"""Sources, as definitions name them."""

from tidemark.define.source import Source

__all__ = ["Source"]
