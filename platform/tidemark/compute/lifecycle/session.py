"""Merge and fire the sessions of a run, cluster by cluster.

Fragments (`fragments`) that touch form a cluster (`clusters`). If no session of a cluster can have
fired before all fragments of the cluster arrived, the engine merges the cluster into one session.
For all other clusters, `session_workers` determines which sessions existed, and when they fired,
from the times and watermarks of the fragments.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.lifecycle.clusters import (
    CLUSTER_START,
    add_clusters,
    are_all_plain,
    cluster_columns,
    cluster_window,
    earliest_open,
    is_plain,
    touches_ranges,
)
from tidemark.compute.lifecycle.fragments import aggregate_fragments
from tidemark.compute.lifecycle.session_workers import partial_columns, replay_clusters
from tidemark.compute.rows import finish_rows, merge_columns_with_facts
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, FIRED, IS_DELETED, PHASE, WATERMARK_BEFORE
from tidemark.engine.queries.requests import observe_rows
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges
from tidemark.store.event_log.log import Log
from tidemark.store.rows import Rows


def aggregate_events(
    events: DataFrame,
    definition: Definition,
    log: Log,
    columns: list[Column],
    earlier_partials: DataFrame | None = None,
) -> DataFrame:
    return aggregate_fragments(events, definition, log, columns)


def list_firings(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    *,
    all_fire_once: bool = False,
) -> DataFrame:
    fragments = add_clusters(stored, definition)
    if all_fire_once:
        return _list_plain_firings(fragments, definition, current)
    by_replay = replay_clusters(
        fragments, definition, log, current, accumulation=definition.accumulation
    )
    if definition.trigger.fires_early:
        return by_replay
    return _list_plain_firings(fragments, definition, current).unionByName(by_replay)


def _list_plain_firings(fragments: DataFrame, definition: Definition, current: AsOf) -> DataFrame:
    parts = F.collect_list(F.struct(partial_columns(definition))).alias("_upto")
    clusters = _aggregate_clusters(fragments, definition, [parts])
    firings = _fire_plain_clusters(clusters, current)
    row = F.struct("window_start", "window_end", F.lit(False).alias("_deleted"), "_upto")
    # An empty array of the right type.
    no_rows = F.filter(F.array(row), lambda _: F.lit(False))
    return firings.withColumns(
        {
            "_live": F.lit(True),
            "_fresh": F.col("_upto"),
            "_replaces": no_rows,
        },
    )


def finish_windows(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    *extra_columns: Column,
    all_fire_once: bool = False,
    near_ranges: Ranges = ALL_WINDOWS,
) -> DataFrame:
    """Return the current rows of the sessions that have fired.

    Args:
        extra_columns: further aggregate expressions over the admitted partials.
        all_fire_once: result of the function `all_fire_once` for these partials.
        near_ranges: ranges of event times. Only the sessions of clusters that may touch a
            fragment with its start in these ranges are returned; all sessions by default.
    """
    fragments = add_clusters(stored, definition)
    if near_ranges != ALL_WINDOWS:
        end = F.max("_end").over(cluster_window(definition))
        fragments = fragments.withColumn("_until", end)
        fragments = fragments.where(
            touches_ranges(F.col(CLUSTER_START), F.col("_until"), definition, near_ranges)
        )
    aggregates = merge_columns_with_facts(definition)
    aggregates.extend(extra_columns)
    parts: list[DataFrame] = []
    if all_fire_once or not definition.trigger.fires_early:
        clusters = _aggregate_clusters(fragments, definition, aggregates)
        parts.append(_fire_plain_clusters(clusters, current).drop(FIRED))
    if not all_fire_once:
        names = None
        if extra_columns:
            # The extra columns may aggregate any column of the partials.
            names = [name for name in stored.columns if name not in definition.by_window]
        replayed = replay_clusters(fragments, definition, log, current, names=names)
        parts.append(_merge_fragments(replayed.where("_live"), definition, [], aggregates))
    rows = reduce(DataFrame.unionByName, parts)
    return finish_rows(rows.withColumnRenamed("pane", "revision"), definition, current)


def compute_changes(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    previous: AsOf,
    *,
    opened: Observation | None = None,
    all_fire_once: bool = False,
) -> DataFrame:
    # Return current rows that fired or became final between the two moments, and rows of
    # sessions that no longer exist.
    fragments = add_clusters(stored, definition)
    has_fired = slot.has_fired_since(definition, previous)
    is_newly_final = slot.has_become_final(definition, current, previous)
    aggregates = merge_columns_with_facts(definition)
    parts: list[DataFrame] = []
    if not definition.trigger.fires_early:
        clusters = _aggregate_clusters(fragments, definition, aggregates)
        if opened is not None:
            clusters = observe_rows(clusters, opened, earliest_open(definition, current))
            opened = None
        firings = _fire_plain_clusters(clusters, current)
        plain_rows = firings.where(has_fired | is_newly_final).drop(FIRED)
        parts.append(plain_rows.withColumn("_deleted", F.lit(False)))
    if not all_fire_once:
        replayed = replay_clusters(fragments, definition, log, current, opened=opened)
        changed = _select_changed(replayed, definition, has_fired, is_newly_final)
        parts.append(_merge_fragments(changed, definition, ["_deleted"], aggregates))
    renamed = reduce(DataFrame.unionByName, parts).withColumnsRenamed(
        {"pane": "revision", "_deleted": IS_DELETED}
    )
    return finish_rows(renamed, definition, current)


def _select_changed(
    rows: DataFrame, definition: Definition, has_fired: Column, is_newly_final: Column
) -> DataFrame:
    """Return the rows that changed since the last run, given the firings of replayed clusters.

    A row changes if it is published, becomes final, or is deleted. `_deleted` is true if it is
    deleted.

    Args:
        rows: the firings that `replay_clusters` returned.
        has_fired: true if a firing happened since the last run.
        is_newly_final: true if the window of a firing became final since the last run.
    """
    # An empty array of the right type.
    no_partials = F.filter("_upto", lambda _: F.lit(False))
    no_number = F.lit(None).cast("int")

    def to_deleted_row(replaced: Column) -> Column:
        return F.struct(
            replaced["window_start"].alias("window_start"),
            replaced["window_end"].alias("window_end"),
            no_number.alias("pane"),
            no_number.alias(PHASE),
            F.lit(True).alias("_deleted"),
            no_partials.alias("_upto"),
        )

    row = F.struct(
        "window_start", "window_end", "pane", PHASE, F.lit(False).alias("_deleted"), "_upto"
    )
    is_current = F.col("_live") & (has_fired | is_newly_final)
    current_rows = F.filter(F.array(row), lambda _: is_current)
    disappeared = F.filter("_replaces", lambda replaced: replaced["_deleted"])
    deleted_rows = F.transform(disappeared, to_deleted_row)
    entries = F.concat(current_rows, F.filter(deleted_rows, lambda _: has_fired))
    changed = rows.select(*definition.keys, F.explode(entries).alias("_entry"))
    return changed.select(*definition.keys, "_entry.*")


def repartition_for_merge(stored: DataFrame, definition: Definition) -> DataFrame:
    # Finding clusters shuffles the fragments by key anyway.
    return stored


def all_fire_once(stored: Rows, definition: Definition) -> bool:
    if definition.trigger.fires_early:
        return False
    if not isinstance(stored, DataFrame):
        return are_all_plain(stored, definition)
    # All clusters are plain if all fragments are ahead. The engine only has to scan the fragments.
    behind = F.col(WATERMARK_BEFORE) >= F.unix_micros("window_start")
    return stored.where(F.col(ADMITTED) & behind).isEmpty()


def find_open_from(stored: DataFrame, definition: Definition, current: AsOf) -> DataFrame:
    """Return one row with `open_from`, BIGINT microseconds, as `earliest_open` computes it.

    `open_from` is the start of the first session that events of arrivals after `current` can still
    change; null if no session can change.
    """
    fragments = add_clusters(stored, definition)
    clusters = fragments.groupBy(cluster_columns(definition)).agg(F.max("_end").alias("_end"))
    return clusters.agg(earliest_open(definition, current))


def _aggregate_clusters(
    fragments: DataFrame, definition: Definition, aggregates: list[Column]
) -> DataFrame:
    """Return clusters with their `_end`, `_plain`, and the given aggregates of their fragments."""
    end = F.max("_end").alias("_end")
    plain = is_plain().alias("_plain")
    return fragments.groupBy(cluster_columns(definition)).agg(end, plain, *aggregates)


def _fire_plain_clusters(clusters: DataFrame, current: AsOf) -> DataFrame:
    """Return the firing of each plain cluster whose end the watermark has reached.

    A plain cluster is one session, which fires once.
    """
    fired = clusters.where(F.col("_plain") & (F.col("_end") <= current.watermark))
    firings = fired.withColumns(
        {
            "window_start": F.timestamp_micros(CLUSTER_START),
            "window_end": F.timestamp_micros("_end"),
            "pane": F.lit(0),
            PHASE: F.lit(slot.ON_TIME),
            FIRED: F.lit(None).cast("bigint"),
        }
    )
    return firings.drop(CLUSTER_START, "_end", "_plain")


def _merge_fragments(
    firings: DataFrame, definition: Definition, extra_names: list[str], aggregates: list[Column]
) -> DataFrame:
    """Return the rows of firings, each merged from the partials in its `_upto`.

    Args:
        extra_names: further columns of the firings to return.
        aggregates: the aggregates of the partials.
    """
    group_columns = definition.by_window
    group_columns += ["pane", PHASE]
    group_columns += extra_names
    partials = firings.select(*group_columns, F.explode_outer("_upto").alias("_part"))
    flat = partials.select(*group_columns, "_part.*")
    return flat.groupBy(group_columns).agg(*aggregates)
