"""Lanes: stateless pipelines from topic to topic, record by record within milliseconds, without a
table."""

from tidemark_streaming.lane.definition import Lane

__all__ = ["Lane"]
