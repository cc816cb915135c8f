"""A source connector for Delta tables that another program writes."""

from tidemark_streaming.delta.feed import CHANGE, DeltaFeed

__all__ = ["CHANGE", "DeltaFeed"]
