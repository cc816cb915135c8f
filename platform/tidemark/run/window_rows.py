"""Compute the rows of the windows that a commit can change, as they would be published.

If the windows have few partials, their rows are computed in memory if possible (`in_memory`), and
otherwise in the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.compute import in_memory
from tidemark.compute.compare import keys_as_json, same_window
from tidemark.compute.lifecycle import choose_lifecycle, clusters, session
from tidemark.compute.materialize import TempTables
from tidemark.compute.windowing import as_of
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import Windowed
from tidemark.define.helper_columns import IS_DELETED
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import observe_rows
from tidemark.quality import quarantine
from tidemark.quality.evidence import KEYS
from tidemark.quality.gx import ROW
from tidemark.quality.validation import row_number
from tidemark.run.committed_state import CommittedState
from tidemark.run.plan import Plan
from tidemark.run.workload import Workload
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.kinds import SessionReplacement
from tidemark.store.rows import Rows, is_empty


@dataclass(frozen=True)
class WindowRows:
    """The rows of the windows that a commit can change.

    Args:
        rows: the rows as they would be published, with the columns of `Computation.windows`.
        overflowed: true if a row has a value that exceeds its type.
        all_fire_once: true if each session is known to fire exactly once.
    """

    rows: Rows
    overflowed: bool = False
    all_fire_once: bool = False


def compute_rows(
    asset: Asset,
    plan: Plan,
    state: CommittedState,
    temp_tables: TempTables,
    workload: Workload,
    open_sessions: Observation | None,
    *,
    is_guarded: bool,
) -> WindowRows:
    """Return the rows of the windows that the commit can have changed.

    Args:
        open_sessions: an observation that receives `open_from` if the engine computes sessions.
        is_guarded: true if the rows are validated. They then have the columns that only validation
            needs (`UNPUBLISHED`).
    """
    commit_info = plan.commit_info
    if workload.few_partials:
        rows = _compute_in_memory(asset, commit_info, state, is_guarded=is_guarded)
        if rows is not None:
            return WindowRows(rows)
    all_fire_once = _all_fire_once(asset, plan, state, workload)
    query = _compute_in_engine(
        asset,
        commit_info,
        state,
        temp_tables,
        workload,
        open_sessions,
        all_fire_once=all_fire_once,
    )
    rows, overflowed = _materialize_and_watch(
        query, asset.transform, commit_info, temp_tables, workload, is_guarded=is_guarded
    )
    if overflowed and not is_guarded:
        # The rows must be validated after all.
        rows = temp_tables.materialize(
            _add_commit_columns(query, asset.transform, commit_info, is_guarded=True),
            few=workload.few_partials,
        )
    return WindowRows(rows, overflowed, all_fire_once)


def _materialize_and_watch(
    query: DataFrame,
    definition: Definition,
    commit_info: CommitInfo,
    temp_tables: TempTables,
    workload: Workload,
    *,
    is_guarded: bool,
) -> tuple[Rows, bool]:
    """Compute a query's rows. Return them, and whether a value exceeds its type."""
    can_overflow = any(a.overflowed for a in definition.aggregates.values())
    overflows = Observation()
    watched = query
    if can_overflow:
        watched = observe_rows(query, overflows, F.max(F.size(OVERFLOWED)).alias("overflowed"))
    rows = temp_tables.materialize(
        _add_commit_columns(watched, definition, commit_info, is_guarded=is_guarded),
        few=workload.few_partials,
    )
    return rows, can_overflow and _has_overflow(query, rows, overflows.get)


def _has_overflow(query: DataFrame, rows: Rows, observed: Mapping[str, int | None]) -> bool:
    """Return whether some window has a value that exceeds its type.

    Args:
        query: the query that computes the windows.
        rows: the computed windows.
        observed: `overflowed`, positive if a value exceeds its type; empty if the engine did not
            observe it.
    """
    if is_empty(rows):
        return False
    if "overflowed" in observed:
        return bool(observed["overflowed"])
    # The engine has optimized the observation away, for example in a simpler plan.
    return not query.where(F.size(OVERFLOWED) > 0).isEmpty()


def _all_fire_once(asset: Asset, plan: Plan, state: CommittedState, workload: Workload) -> bool:
    """Return whether each session is known to fire exactly once. Only the others are replayed."""
    transform = asset.transform
    windows = choose_lifecycle(transform)
    if not plan.few:
        # The extra query pays off only if computing many sessions in both ways, by merging clusters
        # and by replaying them, would be expensive.
        return windows.all_fire_once(state.read_affected(workload.merging), transform)
    if not workload.few_partials or not transform.window.merges:
        return False
    if plan.commit_info.before.covers:
        # The affected partials have only a part of a session that reaches into a backfilled range,
        # and the part may fire differently.
        return False
    partials = state.load_affected_partials()
    return partials is not None and windows.all_fire_once(partials, transform)


def _compute_in_engine(
    asset: Asset,
    commit_info: CommitInfo,
    state: CommittedState,
    temp_tables: TempTables,
    workload: Workload,
    open_sessions: Observation | None,
    *,
    all_fire_once: bool,
) -> DataFrame:
    transform = asset.transform
    windows = choose_lifecycle(transform)
    partials = state.read_affected(workload.merging)
    current = as_of(commit_info.after)
    if isinstance(commit_info, SessionReplacement):
        return _replace_sessions(
            asset, commit_info, partials, temp_tables, workload, all_fire_once=all_fire_once
        )
    if commit_info.recomputed_ranges is not None:
        return windows.finish_windows(
            partials, transform, asset.log, current, all_fire_once=all_fire_once
        )
    return windows.compute_changes(
        partials,
        transform,
        asset.log,
        current,
        as_of(commit_info.before),
        opened=open_sessions,
        all_fire_once=all_fire_once,
    )


def _replace_sessions(
    asset: Asset,
    commit_info: SessionReplacement,
    partials: DataFrame,
    temp_tables: TempTables,
    workload: Workload,
    *,
    all_fire_once: bool,
) -> DataFrame:
    """Return a row for each session that the commit may have changed, and the rows to delete.

    The commit may have changed the sessions that touch a partial in one of its ranges. `IS_DELETED`
    is true for the earlier row of such a session that no longer exists.
    """
    transform = asset.transform
    ranges = commit_info.ranges
    sessions = session.finish_windows(
        partials,
        transform,
        asset.log,
        as_of(commit_info.after),
        all_fire_once=all_fire_once,
        near_ranges=ranges,
    )
    current = temp_tables.materialize_frame(sessions, few=workload.merging is Planning.FEW)
    earlier = quarantine.read_computed(asset.warehouse, transform, ())
    start = F.unix_micros("window_start")
    end = F.unix_micros("window_end")
    earlier = earlier.where(clusters.touches_ranges(start, end, transform, ranges))
    same = same_window(transform, "e", "s")
    deleted = earlier.alias("e").join(current.alias("s"), same, "left_anti")
    unknown_columns = set(deleted.columns) - set(current.columns)
    deleted = deleted.drop(*unknown_columns).withColumn(IS_DELETED, F.lit(True))
    kept = current.withColumn(IS_DELETED, F.lit(False))
    return kept.unionByName(deleted, allowMissingColumns=True)


def _compute_in_memory(
    asset: Asset, commit_info: CommitInfo, state: CommittedState, *, is_guarded: bool
) -> pa.Table | None:
    """Compute in memory the rows of the windows that the commit can have changed.

    Return None if only the engine can compute these rows.
    """
    transform = asset.transform
    if not in_memory.has_supported_firings(transform, commit_info):
        return None
    partials = state.load_affected_partials()
    if partials is None:
        return None
    if not in_memory.is_supported(transform, commit_info):
        if is_guarded or commit_info.recomputed_ranges is not None:
            return None
        if not in_memory.changes_nothing(partials, transform, commit_info):
            return None
        return _no_windows(asset)
    rows = in_memory.compute_changes(partials, transform, commit_info)
    if rows is None:
        return None
    if not is_guarded:
        return rows.drop_columns([SLACK])
    return _add_validation_columns(rows, transform)


def _add_validation_columns(rows: pa.Table, definition: Definition) -> pa.Table | None:
    """Return rows with the columns that only validation needs.

    Return None if only the engine can compute these columns.
    """
    keys = in_memory.keys_as_json(rows, definition.keys)
    if keys is None:
        return None
    if not _needs_slack(definition):
        rows = rows.drop_columns([SLACK])
    numbers = pa.array(range(rows.num_rows), pa.int64())
    no_overflows = pa.array([[]] * rows.num_rows, pa.list_(pa.string()))
    rows = rows.append_column(ROW, numbers)
    rows = rows.append_column(KEYS, keys)
    return rows.append_column(OVERFLOWED, no_overflows)


def _no_windows(asset: Asset) -> pa.Table | None:
    """Return no rows, with the published columns and `IS_DELETED`.

    Return None before the first row, whose types only the engine knows.
    """
    if not asset.warehouse.has_table(asset.transform.published_table):
        return None
    published = asset.warehouse.read_schema(asset.transform.published_table)
    return published.append(pa.field(IS_DELETED, pa.bool_())).empty_table()


def _add_commit_columns(
    rows: DataFrame, definition: Definition, commit_info: CommitInfo, *, is_guarded: bool
) -> DataFrame:
    columns = [
        "window_start",
        "window_end",
        *definition.keys,
        *definition.aggregates,
        "events",
        "late_events",
        F.col("revision").cast("int"),
        "timing",
        "final",
        "last_arrival",
        commit_info.after.position_column("arrival").alias("as_of"),
        uncompiled_literal(commit_info.commit_number).alias("commit_number"),
        F.lit(None).cast("string").alias("quality"),
    ]
    if commit_info.replaced_ranges is None:
        columns.append(IS_DELETED)
    elif is_guarded:
        # If all rows of some windows are replaced, no row is deleted. Without validation, such rows
        # get no flag: they are exactly the published ones, so their files are committed unchanged.
        columns.append(F.lit(False).alias(IS_DELETED))
    if not is_guarded:
        return rows.select(columns)
    columns.append(OVERFLOWED)
    if _needs_slack(definition):
        columns.append(SLACK)
    numbered = {ROW: row_number(), KEYS: keys_as_json(definition.keys)}
    return rows.select(columns).withColumns(numbered)


def _needs_slack(definition: Definition) -> bool:
    """Return whether an expectation needs the rounding error of the values (`SLACK`)."""
    return any(isinstance(e, Windowed) and e.slack for e in definition.expectations)
