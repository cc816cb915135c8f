"""Lanes: records go from topic to topic within milliseconds, one by one, without a table."""

from tidemark_streaming.lane.definition import Lane

__all__ = ["Lane"]
