"""Delta tables that somebody else writes, as a way in."""

from tidemark_streaming.delta.feed import CHANGE, DeltaFeed

__all__ = ["CHANGE", "DeltaFeed"]
