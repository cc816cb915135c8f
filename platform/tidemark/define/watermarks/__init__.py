"""Watermarks: how far a source's event time is known to be complete.

A watermark W promises that no event with event time < W is still expected. It is a property of the
source, moves once for each arrival, from what the arrival brought, and never goes back. `None` is
minus infinity, the watermark before the first event; INFINITY is the watermark after the end of
the stream, and no strategy reaches it alone.

| strategy | watermark after an arrival |
| --- | --- |
| `BoundedOutOfOrderness(bound)` | newest event time so far - bound |
| `Monotonous()` | newest event time so far: events come in order |
| `Punctuated(expression)` | the greatest that an expression over the rows ever gave |
| `PerPartition(column, bound, idle)` | the least of the bounds of each partition that is not idle |
| `Perfect()` | none until the stream ends: history read whole, nothing is late |
| `Manual()` | what the feed said with the arrival, as a source that knows, or a test, does |

A strategy has two halves. `observe` reduces the rows of one arrival, in Spark, to a text that says
all the strategy wants to know of them; `advance` folds these texts over the arrivals in Python,
with what it has to remember between two arrivals as a second text. The facts of many arrivals are
therefore computed in one pass over the data, and are the same as one by one. A strategy of your
own derives from `Watermark`, which shows how.
"""

from tidemark.define.watermarks.given import Manual, Perfect
from tidemark.define.watermarks.partitioned import PerPartition
from tidemark.define.watermarks.seen import BoundedOutOfOrderness, Monotonous, Punctuated
from tidemark.define.watermarks.strategy import Watermark, forward

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
