"""Clusters: chains of touching fragments of one key, and whether they must be replayed.

Fragments of a key, ordered by their starts, form a cluster until a gap follows. Which sessions
existed at any time depends only on the fragments of their cluster; in the end, the cluster is one
session. The engine finds clusters in one pass over the sorted fragments. Only clusters in which a
session fired before all fragments had arrived must be replayed.

In a *plain* cluster, none did. Without early firings, a session fires when the watermark reaches
its end, which is the end of one of its fragments. A fragment is *ahead* if it arrived while the
watermark was before its start. A cluster counts as plain if

1. the watermark was before its end whenever a fragment arrived, and
2. the fragments ahead form one chain by themselves, which starts no later than the earliest end of
   a fragment and ends where the cluster ends.

Proof: take any fragment's end E that is before the end of the cluster. Some fragment ahead starts
at or before E and ends after E. It arrived while the watermark was before its own start, and so
before E. When the watermark passed E, this fragment was already present, so the session was longer.
The session therefore did not fire, and did not close, before all fragments had arrived. One firing
is left: on time, when the watermark reaches the end of the cluster.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, WATERMARK_BEFORE
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.commits.ranges import Ranges

CLUSTER_START = "_from"
"""Column with the start of a fragment's cluster; with the keys, it identifies the cluster."""


def add_clusters(stored: DataFrame, transform: Definition) -> DataFrame:
    """Return the admitted fragments with their clusters.

    Adds these columns, all BIGINT microseconds:

    - `_start` and `_end` of the fragment
    - `_from`: start of its cluster
    - `_ahead`: the fragment's end, if it is ahead
    - `_island`: the fragment's start, if it is the first of a cluster of fragments ahead
    """
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    rows = stored.where(F.col("window_start").isNotNull() & F.col(ADMITTED)).withColumns(
        {
            "_start": start,
            "_end": end,
            "_ahead": F.when(
                F.col(WATERMARK_BEFORE).isNull() | (F.col(WATERMARK_BEFORE) < start), end
            ),
        }
    )
    first = F.col("_ahead").isNotNull() & _starts_beyond("_ahead", transform.keys)
    rows = rows.withColumn("_island", F.when(first, F.col("_start")))
    return add_chains(rows, transform.keys, CLUSTER_START)


def add_chains(rows: DataFrame, by: Sequence[str], name: str) -> DataFrame:
    """Return rows with the start of the first row in their chain of touching rows.

    Args:
        rows: with `_start` and `_end`, BIGINT. Two rows touch if one starts exactly where the other
            ends.
        by: columns that are equal within a chain.
    """
    so_far = _window_in_order(by).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begun = rows.withColumn(name, F.when(_starts_beyond("_end", by), F.col("_start")))
    return begun.withColumn(name, F.max(name).over(so_far))


def _starts_beyond(end: str, by: Sequence[str]) -> Column:
    """Return whether a row starts beyond the `end` of all rows that start before it."""
    earlier = _window_in_order(by).rowsBetween(Window.unboundedPreceding, -1)
    return F.col("_start") > F.coalesce(F.max(end).over(earlier), F.lit(-INFINITY))


def _window_in_order(by: Sequence[str]) -> WindowSpec:
    # Without `by`, all rows are one partition, and Spark would log a warning.
    return Window.partitionBy(*by, F.lit(0)).orderBy("_start")


def touches_ranges(start: Column, end: Column, transform: Definition, ranges: Ranges) -> Column:
    """Return whether a fragment that starts in a range may touch a session or cluster."""
    gap = transform.window.merge_gap
    return reduce(
        or_,
        (
            (start <= uncompiled_literal(b + gap)) & (end >= uncompiled_literal(a))
            for a, b in ranges
        ),
    )


def cluster_window(transform: Definition) -> WindowSpec:
    return Window.partitionBy(*transform.keys, CLUSTER_START)


def is_plain(over: WindowSpec | None = None) -> Column:
    """Return whether a cluster is plain, BOOLEAN, for transforms without early firings.

    Args:
        over: a window over all fragments of a cluster, to get the result for each fragment; without
            it, the result is an aggregate.
    """

    def of(aggregate: Column) -> Column:
        return aggregate if over is None else aggregate.over(over)

    end = of(F.max("_end"))
    punctual = F.coalesce(of(F.max(WATERMARK_BEFORE)) < end, F.lit(True))
    one = of(F.count("_island")) == 1
    spans = (of(F.min("_island")) <= of(F.min("_end"))) & (of(F.max("_ahead")) == end)
    return punctual & one & F.coalesce(spans, F.lit(False))


def earliest_open(transform: Definition, at: AsOf) -> Column:
    """Return the start of the first cluster that events of arrivals after `at` can still change.

    Such an event is not too late, so its event time is later than the watermark minus the allowed
    lateness and the gap. It can only join sessions that end after that. The column is `open_from`;
    the clusters need `_end`.
    """
    settled = at.watermark - F.lit(transform.allowed_lateness + transform.window.merge_gap)
    can_change = F.coalesce(F.col("_end") > settled, F.lit(True))
    return F.min(F.when(can_change, F.col(CLUSTER_START))).alias("open_from")
