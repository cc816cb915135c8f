"""Clusters: fragments of a key that touch, one after the other, and what becomes of them.

Fragments of a key, in the order of their starts, form a cluster up to where a gap follows. What
sessions there were at any time is told within a cluster; at last it is one session. So clusters
are found by the engine, in one pass over sorted fragments, and only those in which anything fired
while they came have to be replayed.

In a *plain* cluster nothing did. Without early firings a session fires when the watermark reaches
its end, and its end is that of a fragment. Call a fragment *ahead* if it came while the watermark
was before its start. A cluster is taken for plain if

1. the watermark was before its end whenever a fragment came, and
2. the fragments ahead are one cluster by themselves, from no later than where the first fragment
   ends to where the last one does.

For then, take the end of any other fragment: a fragment ahead reaches across it, which came while
the watermark was before its own start, and so before that end. So whenever the watermark passed the
end of a fragment, what reaches across it was there, and the session was longer than that: it never
fired, and was never closed, before all of it had come. What is left is one firing, on time, once
the watermark reaches the end of the whole.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.engine.varying import varying
from tidemark.store.ranges import Ranges, joined

FROM = "_from"
"""The column that tells, with the keys, which cluster a fragment is in: where it starts."""


GAPS, DAY = 64, 86_400_000_000
"""A fragment is of so many gaps at most, and of no more than a day unless a gap is."""


def clustered(stored: DataFrame, transform: WindowedTransform) -> DataFrame:
    """The fragments that count, with the clusters that they are in.

    Adds, all BIGINT microseconds: `_start` and `_end`, of the fragment; `_from`, the start of its
    cluster; `_ahead`, its end if it is a fragment ahead; `_island`, its start if it is the first of
    a cluster of fragments ahead.
    """
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    rows = stored.where(F.col("window_start").isNotNull() & F.col("admitted")).withColumns(
        {
            "_start": start,
            "_end": end,
            "_ahead": F.when(F.col("before").isNull() | (F.col("before") < start), end),
        }
    )
    # Without keys all is one partition, of which Spark would warn.
    in_order = Window.partitionBy(*transform.keys, F.lit(0)).orderBy("_start")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def begins(column: str) -> Column:
        return F.col("_start") > F.coalesce(F.max(column).over(earlier), F.lit(-INFINITY))

    rows = rows.withColumns(
        {
            "_begin": F.when(begins("_end"), F.col("_start")),
            "_island": F.when(F.col("_ahead").isNotNull() & begins("_ahead"), F.col("_start")),
        }
    )
    return rows.withColumn(FROM, F.max("_begin").over(so_far)).drop("_begin")


def cell(transform: WindowedTransform) -> int:
    """The length, in microseconds, of the spans of time of which no fragment crosses the bounds."""
    gap = _gap(transform)
    return gap * max(1, min(GAPS, DAY // gap))


def cells(ranges: Ranges, transform: WindowedTransform) -> Ranges:
    """Ranges of event times, widened so that no fragment has events within and without."""
    size = cell(transform)
    return joined((start // size * size, -(-end // size) * size) for start, end in ranges)


def touching(start: Column, end: Column, transform: WindowedTransform, ranges: Ranges) -> Column:
    """Whether a session or cluster may be touched by one with a fragment that starts in a range."""
    gap = _gap(transform)
    return reduce(or_, ((start <= varying(b + gap)) & (end >= varying(a)) for a, b in ranges))


def _gap(transform: WindowedTransform) -> int:
    assert isinstance(transform.window, Session)
    return transform.window.gap


def all_plain(stored: DataFrame, transform: WindowedTransform) -> bool:
    """Whether all clusters are plain, as all fragments are ahead. It asks the engine, which only
    has to look through them."""
    if transform.trigger.early is not None:
        return False
    behind = F.col("before") >= F.unix_micros("window_start")
    return stored.where(F.col("admitted") & behind).isEmpty()


def whole(transform: WindowedTransform) -> WindowSpec:
    """All fragments of a cluster."""
    return Window.partitionBy(*transform.keys, FROM)


def plain(over: WindowSpec | None = None) -> Column:
    """Whether a cluster is plain, BOOLEAN, by aggregating its fragments; for transforms that do
    not fire early.

    Args:
        over: all fragments of a cluster, to have it with each of them.
    """

    def of(aggregate: Column) -> Column:
        return aggregate if over is None else aggregate.over(over)

    end = of(F.max("_end"))
    punctual = F.coalesce(of(F.max("before")) < end, F.lit(True))
    one = of(F.count("_island")) == 1
    spans = (of(F.min("_island")) <= of(F.min("_end"))) & (of(F.max("_ahead")) == end)
    return punctual & one & F.coalesce(spans, F.lit(False))
