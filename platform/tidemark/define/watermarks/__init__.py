"""Watermarks: up to which event time a source is known to be complete.

A watermark W promises that no event with event time < W is still expected. It is a property of the
source. It moves once per arrival, based on the contents of the arrival, and never goes back. `None`
is minus infinity, the watermark before the first event. INFINITY is the watermark after the end of
the stream. Only the end of the stream sets it; a strategy must not return it.

| strategy | watermark after an arrival |
| --- | --- |
| `BoundedOutOfOrderness(bound)` | newest event time so far - bound |
| `MonotonicTimestamps()` | newest event time so far: events arrive in order |
| `Punctuated(expression)` | the latest value so far of an expression over the rows |
| `PerPartition(column, bound, idle)` | the earliest watermark of the partitions that are not idle |
| `Perfect()` | none until the stream ends: for complete history, in which nothing is late |
| `Manual()` | the value that the connector gives with the arrival; also for tests |

An ingest that follows a silent source records heartbeats, if the source has `heartbeat`. Once the
silence has lasted for `idle` of the strategy, the watermark after each heartbeat is at least the
heartbeat's processing time - `bound`, so the last windows close.

A strategy has two halves. `observe` reduces the rows of one arrival, in Spark, to a text with all
that the strategy needs from the rows. `advance` processes these texts in the order of the arrivals,
in Python, and keeps its state between two arrivals as a second text. Many arrivals can therefore be
observed in one pass over the data, with the same result as one arrival at a time. To write your own
strategy, derive from `Watermark`, which has an example.
"""

from tidemark.define.watermarks.given import Manual, Perfect
from tidemark.define.watermarks.partitioned import PerPartition
from tidemark.define.watermarks.seen import BoundedOutOfOrderness, MonotonicTimestamps, Punctuated
from tidemark.define.watermarks.strategy import Watermark, after_heartbeat, forward

__all__ = [
    "BoundedOutOfOrderness",
    "Manual",
    "MonotonicTimestamps",
    "PerPartition",
    "Perfect",
    "Punctuated",
    "Watermark",
    "after_heartbeat",
    "forward",
]
