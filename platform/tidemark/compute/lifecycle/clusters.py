"""Clusters: chains of touching fragments of one key, and whether they must be replayed.

A *fragment* has the partials of events of one key that are at most a gap apart (`fragments`).
Fragments of a key, ordered by their starts, form a cluster until a gap follows. Which sessions
existed at any time depends only on the fragments of their cluster; in the end, the cluster is one
session. The engine finds clusters in one pass over the sorted fragments. Only clusters in which a
session fired before all fragments had arrived must be replayed.

In a *plain* cluster, no session fired before all fragments had arrived. Without early firings, a
session fires when the watermark reaches the session's end, which is the end of one of its
fragments. A fragment is *ahead* if it arrived while the watermark was before the fragment's start.
A cluster counts as plain if

1. the watermark was before the cluster's end whenever a fragment arrived, and
2. the fragments that are ahead form one chain by themselves; this chain starts no later than the
   earliest end of any fragment, and ends where the cluster ends.

Proof: take any fragment's end E that is before the end of the cluster. Some fragment that is ahead
starts at or before E and ends after E. It arrived while the watermark was before its own start, and
so before E. When the watermark passed E, this fragment was already present, so the session was
longer. The session therefore did not fire, and did not close, before all fragments had arrived. One
firing remains: on time, when the watermark reaches the end of the cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import attrgetter, or_
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, WATERMARK_BEFORE
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.commits.ranges import Ranges
from tidemark.store.rows import compute as pc
from tidemark.store.rows import is_comparable, to_dicts

CLUSTER_START = "_from"
"""Column with the start of a fragment's cluster; with the keys, it identifies the cluster."""


def add_clusters(stored: DataFrame, definition: Definition) -> DataFrame:
    """Return the admitted fragments with their clusters.

    Adds these columns, all BIGINT microseconds:

    - `_start` and `_end` of the fragment
    - `_from`: start of the fragment's cluster
    - `_ahead`: the fragment's end if the fragment is ahead, otherwise null
    - `_island`: the fragment's start if it is the first of a chain of fragments that are ahead,
      otherwise null
    """
    start = F.unix_micros("window_start")
    end = F.unix_micros("window_end")
    watermark = F.col(WATERMARK_BEFORE)
    is_ahead = watermark.isNull() | (watermark < start)
    admitted = stored.where(F.col("window_start").isNotNull() & F.col(ADMITTED))
    rows = admitted.withColumns({"_start": start, "_end": end, "_ahead": F.when(is_ahead, end)})
    is_first = F.col("_ahead").isNotNull() & _starts_beyond("_ahead", definition.keys)
    rows = rows.withColumn("_island", F.when(is_first, F.col("_start")))
    return add_chains(rows, definition.keys, CLUSTER_START)


def add_chains(rows: DataFrame, group_columns: Sequence[str], name: str) -> DataFrame:
    """Return rows with the start of their chain, a sequence of touching rows.

    Args:
        rows: with `_start` and `_end`, BIGINT. Rows touch if they overlap, or if one starts exactly
            where the other ends.
        group_columns: columns that are equal within a chain.
        name: the name of the new column.
    """
    order = _window_in_order(group_columns)
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Only the first row of a chain has a start of its own. The others take over the last one.
    own_start = F.when(_starts_beyond("_end", group_columns), F.col("_start"))
    return rows.withColumn(name, own_start).withColumn(name, F.max(name).over(so_far))


def _starts_beyond(end: str, group_columns: Sequence[str]) -> Column:
    """Return whether a row starts beyond the `end` of all rows that start before it."""
    earlier = _window_in_order(group_columns).rowsBetween(Window.unboundedPreceding, -1)
    return F.col("_start") > F.coalesce(F.max(end).over(earlier), F.lit(-INFINITY))


def _window_in_order(group_columns: Sequence[str]) -> WindowSpec:
    # Without such columns, all rows are one partition, and Spark would log a warning.
    return Window.partitionBy(*group_columns, F.lit(0)).orderBy("_start")


def touches_ranges(start: Column, end: Column, definition: Definition, ranges: Ranges) -> Column:
    """Return whether a session or cluster may touch a fragment that starts in one of the ranges.

    Args:
        start, end: the bounds of the session or cluster, BIGINT microseconds.
    """
    gap = definition.window.merge_gap
    touches: list[Column] = []
    for range_start, range_end in ranges:
        starts_before = start <= uncompiled_literal(range_end + gap)
        ends_after = end >= uncompiled_literal(range_start)
        touches.append(starts_before & ends_after)
    return reduce(or_, touches)


def cluster_columns(definition: Definition) -> list[str]:
    """Return the columns that identify a cluster."""
    return [*definition.keys, CLUSTER_START]


def cluster_window(definition: Definition) -> WindowSpec:
    return Window.partitionBy(cluster_columns(definition))


def is_plain(over: WindowSpec | None = None) -> Column:
    """Return whether a cluster is plain, BOOLEAN, for transforms without early firings.

    Args:
        over: a SQL window over all fragments of a cluster; each fragment then has the result. By
            default, the result is an aggregate over the fragments.
    """

    def over_cluster(aggregate: Column) -> Column:
        if over is None:
            return aggregate
        return aggregate.over(over)

    end = over_cluster(F.max("_end"))
    newest_watermark = over_cluster(F.max(WATERMARK_BEFORE))
    is_punctual = F.coalesce(newest_watermark < end, F.lit(True))
    has_one_island = over_cluster(F.count("_island")) == 1
    starts_early = over_cluster(F.min("_island")) <= over_cluster(F.min("_end"))
    ends_last = over_cluster(F.max("_ahead")) == end
    spans_cluster = F.coalesce(starts_early & ends_last, F.lit(False))
    return is_punctual & has_one_island & spans_cluster


def are_all_plain(fragments: pa.Table, definition: Definition) -> bool:
    """Return whether all clusters of fragments in memory are plain, by the rules of `is_plain`.

    The result is also False if keys are equal in the engine by other rules than in memory.
    """
    for key in definition.keys:
        if not is_comparable(fragments.schema.field(key).type):
            return False
    columns = ["window_start", "window_end", WATERMARK_BEFORE, *definition.keys]
    admitted = pc.and_(pc.is_valid(fragments["window_start"]), fragments[ADMITTED])
    by_key = defaultdict[tuple[Any, ...], list[_Fragment]](list)
    for row in to_dicts(fragments.filter(admitted).select(columns)):
        key_values = tuple(row[name] for name in definition.keys)
        fragment = _Fragment(row["window_start"], row["window_end"], row[WATERMARK_BEFORE])
        by_key[key_values].append(fragment)
    for key_fragments in by_key.values():
        if not all(map(_is_plain, _find_clusters(key_fragments))):
            return False
    return True


class _Fragment(NamedTuple):
    """The bounds of a fragment, and the watermark before its arrival, all in microseconds."""

    start: int
    end: int
    watermark: int | None

    @property
    def is_ahead(self) -> bool:
        return self.watermark is None or self.watermark < self.start


def _find_clusters(fragments: Iterable[_Fragment]) -> list[list[_Fragment]]:
    """Return the clusters of some fragments of a key."""
    clusters = list[list[_Fragment]]()
    reached = -INFINITY
    for fragment in sorted(fragments, key=attrgetter("start")):
        if clusters and fragment.start <= reached:
            clusters[-1].append(fragment)
        else:
            clusters.append([fragment])
        reached = max(reached, fragment.end)
    return clusters


def _is_plain(cluster: Sequence[_Fragment]) -> bool:
    ends = [fragment.end for fragment in cluster]
    end = max(ends)
    for fragment in cluster:
        if fragment.watermark is not None and fragment.watermark >= end:
            return False
    chains = _find_clusters(fragment for fragment in cluster if fragment.is_ahead)
    if len(chains) != 1:
        return False
    (chain,) = chains
    starts_early = chain[0].start <= min(ends)
    ends_last = max(fragment.end for fragment in chain) == end
    return starts_early and ends_last


def earliest_open(definition: Definition, current: AsOf) -> Column:
    """Return the start of the first cluster that events after `current` can still change.

    An event can change a cluster only if it is not too late. Its event time is then later than the
    watermark minus the sum of allowed lateness and gap. Such an event can only join sessions that
    end after that instant. The result is an aggregate `open_from` over clusters with their `_end`.
    """
    settled = current.watermark - F.lit(definition.allowed_lateness + definition.window.merge_gap)
    can_change = F.coalesce(F.col("_end") > settled, F.lit(True))
    return F.min(F.when(can_change, F.col(CLUSTER_START))).alias("open_from")
