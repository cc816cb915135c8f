"""Watermark strategies for sources: `from tidemark.watermark import MonotonicTimestamps`."""

from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    MonotonicTimestamps,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
    forward,
)

__all__ = [
    "BoundedOutOfOrderness",
    "Manual",
    "MonotonicTimestamps",
    "PerPartition",
    "Perfect",
    "Punctuated",
    "Watermark",
    "forward",
]
