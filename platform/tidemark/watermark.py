"""Watermark strategies for sources: `from tidemark.watermark import Monotonous`."""

from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    Monotonous,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
    forward,
)

__all__ = [
    "BoundedOutOfOrderness",
    "Manual",
    "Monotonous",
    "PerPartition",
    "Perfect",
    "Punctuated",
    "Watermark",
    "forward",
]
