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

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.engine.varying import varying
from tidemark.store.ranges import Ranges

FROM = "_from"
"""The column that tells, with the keys, which cluster a fragment is in: where it starts."""


def clustered(stored: DataFrame, transform: Definition) -> DataFrame:
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
    first = F.col("_ahead").isNotNull() & _begins("_ahead", transform.keys)
    rows = rows.withColumn("_island", F.when(first, F.col("_start")))
    return chained(rows, transform.keys, FROM)


def chained(rows: DataFrame, by: Sequence[str], name: str) -> DataFrame:
    """Rows with where the first one starts of those that touch each other, one after the other.

    Args:
        rows: with `_start` and `_end`, BIGINT; two that are exactly end to start touch.
        by: the columns in which such rows are alike.
        name: of the column that is added.
    """
    so_far = _in_order(by).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begun = rows.withColumn(name, F.when(_begins("_end", by), F.col("_start")))
    return begun.withColumn(name, F.max(name).over(so_far))


def _begins(end: str, by: Sequence[str]) -> Column:
    """Whether a row starts beyond the `end` of all that start before it."""
    earlier = _in_order(by).rowsBetween(Window.unboundedPreceding, -1)
    return F.col("_start") > F.coalesce(F.max(end).over(earlier), F.lit(-INFINITY))


def _in_order(by: Sequence[str]) -> WindowSpec:
    # Without columns all is one partition, of which Spark would warn.
    return Window.partitionBy(*by, F.lit(0)).orderBy("_start")


def touching(start: Column, end: Column, transform: Definition, ranges: Ranges) -> Column:
    """Whether a session or cluster may be touched by one with a fragment that starts in a range."""
    gap = transform.window.joins
    return reduce(or_, ((start <= varying(b + gap)) & (end >= varying(a)) for a, b in ranges))


def whole(transform: Definition) -> WindowSpec:
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


def earliest_open(transform: Definition, at: AsOf) -> Column:
    """Of clusters with their `_end`, where the first one starts that events of arrivals after `at`
    can still change, as `open_from`.

    Such an event is not later than the allowed lateness: it lies after the watermark by less than
    that and a gap, and joins sessions that end there or later.
    """
    settled = at.watermark - F.lit(transform.allowed_lateness + transform.window.joins)
    can_change = F.coalesce(F.col("_end") > settled, F.lit(True))
    return F.min(F.when(can_change, F.col(FROM))).alias("open_from")
