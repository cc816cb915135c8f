"""Compute the rows that a plan's commit publishes, starting from the plan's events.

There are two steps: compute the new partials, then the rows of the windows that the partials can
change. The second step runs in memory if that is possible (`in_memory`), and otherwise in the
engine. Intermediate rows on which later steps depend are computed once and completely
(`materialize`): a few as Arrow tables in memory, many as files that the engine writes.

A commit's published rows depend only on the commit: on its `CommitInfo` and the state after it.
They are therefore the same if a later run publishes the commit of a killed run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.instants import INFINITY
from tidemark.compute import in_memory, rollups
from tidemark.compute.affected.closed_windows import affected_range, closed_end
from tidemark.compute.compare import keys_as_json, same_window
from tidemark.compute.late_rows import add_missing_columns, late_events, late_loss
from tidemark.compute.lifecycle import clusters, lifecycle, session
from tidemark.compute.materialize import TempTables
from tidemark.compute.pane import as_of, count_scope
from tidemark.compute.pane_table import compute_panes
from tidemark.define import classification
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import Windowed
from tidemark.define.helper_columns import IS_DELETED, MARKER, VERDICT
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import observe
from tidemark.quality import quarantine
from tidemark.quality.evidence import KEYS, UNPUBLISHED
from tidemark.quality.gx import ROW
from tidemark.quality.validation import row_number
from tidemark.run.plan import Plan
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo, StateCommit
from tidemark.store.commits.conditions import window_starts_in
from tidemark.store.commits.kinds import SessionReplacement
from tidemark.store.commits.ranges import NOWHERE, Ranges, merge_ranges
from tidemark.store.rows import Rows, frame, is_empty
from tidemark.store.state import count_by_verdict, counted_column, with_commit_number


@dataclass(frozen=True)
class Output:
    """Rows that a commit writes to a table other than the published one.

    Args:
        replaced: ranges of window starts. The existing rows of windows that start in these ranges
            are replaced. An empty tuple replaces all rows; None only adds rows.
        grows: true to add missing columns to the table.
    """

    table: str
    rows: Rows
    comment: str
    replaced: Ranges | None
    grows: bool = False


@dataclass(frozen=True)
class Computation:
    """Result of computing a plan.

    Args:
        partials: partials to store; None if the state already has them.
        counts: number of the commit's events, by code in `classification.VERDICTS`.
        windows: the changed rows, as they would be published. `IS_DELETED` is added if the rows are
            to be merged or validated, and columns of `UNPUBLISHED` if they are to be validated.
        reach: SQL condition that is true for the published rows that the commit can have changed.
            The alias of the published table is `t`.
        others: rows for other tables.
        open_from: for an increment over sessions, the start of the first session that later
            arrivals can still change; otherwise None.
        overflowed: true if a row has a value that exceeds its type.
    """

    partials: Rows | None
    counts: Counter[int]
    windows: Rows
    reach: str
    others: list[Output] = field(default_factory=list[Output])
    open_from: int | None = None
    overflowed: bool = False


def plan_merging(asset: Asset, plan: Plan) -> tuple[bool, Planning]:
    """Return whether the windows that a commit can change have few stored partials.

    Also return the engine's planning mode for merging these partials.
    """
    marker = plan.marker
    if asset.rolls_up or (marker.commit_number == 0 and not plan.stored):
        return plan.few, plan.counting
    stored = asset.state.at_most(affected_range(asset.transform, marker))
    few = stored <= thresholds.IN_MEMORY_PARTIALS
    if few and plan.few:
        return few, plan.counting
    return few, Planning.SOME if stored <= thresholds.ADAPTIVE_PARTIALS else Planning.MANY


def count_events(asset: Asset, plan: Plan, scratch: TempTables) -> Rows:
    """Return the partials that the commit adds to the state, with its commit number."""
    transform, marker = asset.transform, plan.marker
    assert isinstance(marker, StateCommit)
    earlier = None
    if transform.trigger.ranked and marker.continues:
        earlier = asset.state.read(affected_range(transform, marker))
    rows = count_scope(asset.log, asset.counting, marker.scope(), earlier)
    return scratch.materialize(with_commit_number(rows, marker.commit_number), few=plan.few)


def compute_windows(
    asset: Asset,
    plan: Plan,
    new: Rows | None,
    scratch: TempTables,
    *,
    few: bool,
    planning: Planning,
) -> Computation:
    """Return the rows of the windows that the commit can have changed, and rows for other tables.

    Args:
        new: the partials that the commit adds; None if the state already has them.
        few: true if these windows have few partials.
        planning: the engine's planning mode for merging these partials.
    """
    warehouse, transform, marker = asset.warehouse, asset.transform, plan.marker
    counted = counted_column(transform)
    counts = (
        plan.counts
        if plan.counts is not None
        else count_by_verdict(warehouse.select(new, VERDICT, counted), counted)
        if new is not None
        else Counter()
    )
    state = _State(asset, marker, new)
    adds = marker.recomputed is None
    opened = Observation() if transform.window.merges and adds else None
    marked = is_guarded(asset)
    windows, overflowed = _compute_in_memory(asset, marker, state, marked) if few else None, False
    once = False
    if windows is None:
        once = _all_fire_once(asset, plan, state, planning, few=few)
        changed = _compute_in_engine(
            asset, plan, state, scratch, planning, opened, all_fire_once=once
        )
        watched, seen = changed, Observation()
        if any(a.overflowed for a in transform.aggregates.values()):
            watched = observe(changed, seen, F.max(F.size(OVERFLOWED)).alias("overflowed"))
        windows = scratch.materialize(
            _add_commit_columns(watched, transform, marker, marked), few=few
        )
        overflowed = watched is not changed and _has_overflow(changed, windows, seen.get)
        if overflowed and not marked:
            windows = scratch.materialize(
                _add_commit_columns(changed, transform, marker, marked=True), few=few
            )
    outputs: list[Output] = []
    merges = transform.window.merges and not once
    if transform.accumulation is not None and _can_have_firings(asset, marker, windows, merges):
        then = as_of(marker.before) if adds else None
        rows = _read_affected(asset, marker, state, planning)
        now = as_of(marker.after)
        fired = compute_panes(rows, transform, asset.log, now, then, all_fire_once=once)
        fired = fired.withColumn("commit_number", uncompiled_literal(marker.commit_number))
        comment = f"Every firing of {transform.name}"
        fired = scratch.materialize(fired, few=few)
        outputs.append(Output(transform.panes_table, fired, comment, marker.recomputed))
    missed = classification.TOO_LATE in counts or classification.NO_EVENT_TIME in counts
    own = asset.counting
    # If a commit is published again, a later commit may have replaced some of its partials. The
    # counts are then too low.
    unsure = not adds or marker.begins or plan.taken_up
    missed = missed or (unsure and warehouse.exists(own.late_table))
    if isinstance(marker, StateCommit) and missed:
        lacking = state.lacking()
        loss = late_loss(state.rows(lacking), own, asset.log, marker)
        comment = f"Changes that too-late events would make in {transform.name}"
        materialized = scratch.materialize(loss, few=few)
        replaced = None if adds else lacking
        outputs.append(Output(own.late_loss_table, materialized, comment, replaced))
        if marker.lists_late_events:
            # Too-late events stay in the late table even if a correction counts them.
            events = late_events(asset.log, own, marker)
            if not marker.begins and not marker.renews:
                events = add_missing_columns(warehouse, own, events)
            comment = f"Events that are too late for {transform.name} or have no event time"
            with warehouse.planning(Planning.of(plan.few)):
                materialized = scratch.materialize(events, few=plan.few)
            outputs.append(
                Output(own.late_table, materialized, comment, marker.recomputed, grows=True)
            )
    open_from = None if opened is None else _find_first_open(transform, marker, opened.get)
    end = closed_end(transform, marker.before) if adds else None
    reach = "TRUE" if end is None else f"t.window_end > timestamp_micros({end})"
    return Computation(new, counts, windows, reach, outputs, open_from, overflowed)


def _can_have_firings(asset: Asset, marker: CommitInfo, windows: Rows, merges: bool) -> bool:
    """Return whether the pane table may get rows, or does not exist yet.

    Args:
        windows: the changed rows. A window that fires changes its row.
        merges: true if a session may also fire, and then merge with others before the commit, so
            that no row shows its firing.
    """
    return (
        marker.recomputed is not None
        or merges
        or not is_empty(windows)
        or not asset.warehouse.exists(asset.transform.panes_table)
    )


def _has_overflow(changed: DataFrame, windows: Rows, seen: Mapping[str, int | None]) -> bool:
    """Return whether some window has a value that exceeds its type.

    Args:
        changed: the query that computes the windows.
        windows: the computed windows.
        seen: `overflowed`, positive if a value exceeds its type; empty if the engine did not
            observe it.
    """
    if is_empty(windows):
        return False
    if "overflowed" in seen:
        return bool(seen["overflowed"])
    # The engine has optimized the observation away, for example in a simpler plan.
    return not changed.where(F.size(OVERFLOWED) > 0).isEmpty()


def _needs_slack(transform: Definition) -> bool:
    """Return whether an expectation needs the rounding error of the values (`SLACK`)."""
    return any(isinstance(e, Windowed) and e.slack for e in transform.expectations)


def is_guarded(asset: Asset) -> bool:
    """Return whether an asset's rows are validated before they are published.

    The rows are validated if the asset has expectations, or if it has a quarantine table because
    values of windows overflowed.
    """
    transform = asset.transform
    return bool(transform.expectations) or asset.warehouse.exists(transform.quarantine_table)


def _all_fire_once(
    asset: Asset, plan: Plan, state: "_State", planning: Planning, *, few: bool
) -> bool:
    """Return whether each session is known to fire exactly once. Only the others are replayed.

    Args:
        few: true if the affected windows have few partials.
    """
    transform, kind = asset.transform, lifecycle(asset.transform)
    if not plan.few:
        # The extra query pays off only if computing many sessions in both ways, by merging clusters
        # and by replaying them, would be expensive.
        rows = _read_affected(asset, plan.marker, state, planning)
        return kind.all_fire_once(rows, transform)
    # Of a session that reaches into a backfilled range, `_read_affected` returns only a part, which
    # may fire differently.
    if not few or not transform.window.merges or plan.marker.before.covers:
        return False
    partials = state.take(affected_range(transform, plan.marker))
    return partials is not None and kind.all_fire_once(partials, transform)


def _compute_in_engine(
    asset: Asset,
    plan: Plan,
    state: "_State",
    scratch: TempTables,
    planning: Planning,
    opened: Observation | None,
    *,
    all_fire_once: bool,
) -> DataFrame:
    transform, marker, kind = asset.transform, plan.marker, lifecycle(asset.transform)
    rows = _read_affected(asset, marker, state, planning)
    now = as_of(marker.after)
    if isinstance(marker, SessionReplacement):
        few = planning is Planning.FEW
        return _merge_sessions(asset, marker, rows, scratch, all_fire_once=all_fire_once, few=few)
    if marker.recomputed is not None:
        return kind.finish_windows(rows, transform, asset.log, now, all_fire_once=all_fire_once)
    then = as_of(marker.before)
    return kind.compute_changes(
        rows, transform, asset.log, now, then, opened=opened, all_fire_once=all_fire_once
    )


def _compute_in_memory(
    asset: Asset, marker: CommitInfo, state: "_State", marked: bool
) -> pa.Table | None:
    """Compute in memory the rows of the windows that the commit can have changed.

    Return None if only the engine can compute these rows.

    Args:
        marked: true to add the columns that only validation needs (`UNPUBLISHED`).
    """
    transform = asset.transform
    if not in_memory.has_supported_firings(transform, marker):
        return None
    partials = state.take(affected_range(transform, marker))
    if partials is None:
        return None
    if not in_memory.is_supported(transform, marker):
        has_rows = (
            marked
            or marker.recomputed is not None
            or not in_memory.changes_nothing(partials, transform, marker)
        )
        return None if has_rows else _no_windows(asset)
    rows = in_memory.compute_changes(partials, transform, marker)
    if rows is None or not marked:
        return rows if rows is None else rows.drop_columns([SLACK])
    keys = in_memory.keys_as_json(rows, transform.keys)
    if keys is None:
        return None
    numbers = pa.array(range(rows.num_rows), pa.int64())
    none = pa.array([[]] * rows.num_rows, pa.list_(pa.string()))
    columns = {ROW: numbers, KEYS: keys, OVERFLOWED: none}
    if not _needs_slack(transform):
        rows = rows.drop_columns([SLACK])
    return reduce(lambda table, each: table.append_column(*each), columns.items(), rows)


def _no_windows(asset: Asset) -> pa.Table | None:
    """Return no rows, with the published columns and `IS_DELETED`.

    Return None before the first row, whose types only the engine knows.
    """
    if not asset.warehouse.exists(asset.transform.table):
        return None
    published = asset.warehouse.schema(asset.transform.table)
    return published.append(pa.field(IS_DELETED, pa.bool_())).empty_table()


class _State:
    """The state as it is after the commit.

    Args:
        new: the partials that an increment adds; None if the state already has the commit.
    """

    def __init__(self, asset: Asset, marker: CommitInfo, new: Rows | None) -> None:
        self._asset = asset
        self._marker = marker
        self._new = new

    def rows(self, ranges: Ranges) -> DataFrame:
        """Return the partials of windows that start in one of the ranges.

        Without a range, return all partials, including those without a window.
        """
        stored, marker = self._asset.state, self._marker
        if self._new is None:
            return stored.read(ranges)
        new = frame(self._asset.warehouse.spark, self._new).drop(MARKER)
        new = new.where(window_starts_in(ranges).sql())
        return new if marker.begins else stored.read(ranges).unionByName(new)

    def take(self, ranges: Ranges) -> pa.Table | None:
        """Return the partials of windows that start in one of the ranges, in memory.

        Return None if the new partials are not in memory, but in the engine.
        """
        stored, new = self._asset.state, self._new
        if isinstance(new, DataFrame):
            return None
        partials = None if self._marker.begins and new is not None else stored.take(ranges)
        if new is None:
            return partials
        new = new.filter(window_starts_in(ranges).expression())
        if partials is None:
            return new
        return pa.concat_tables([partials, new.select(partials.column_names).cast(partials.schema)])

    def lacking(self) -> Ranges:
        """Return ranges that contain the starts of all windows that may lack too-late events.

        Only the too-late events of this commit matter. An empty tuple stands for all windows.
        """
        asset, marker = self._asset, self._marker
        if asset.transform.window.merges:
            return ()
        if marker.recomputed is not None:
            return marker.recomputed
        new = asset.state.of(marker.commit_number) if self._new is None else self._new
        missed = frame(asset.warehouse.spark, new).where(classification.is_uncounted())
        starts = missed.select(F.unix_micros("window_start")).distinct().collect()
        return merge_ranges((start, start + 1) for (start,) in starts) or NOWHERE


def _read_affected(
    asset: Asset, marker: CommitInfo, state: _State, planning: Planning
) -> DataFrame:
    transform, before = asset.transform, marker.before
    rows = rollups.assign_windows_within(
        asset, state.rows, marker.after, affected_range(transform, marker)
    )
    if marker.recomputed is None:
        end = closed_end(transform, before)
        if end is not None and not transform.window.merges:
            rows = rows.where(F.unix_micros("window_end") > uncompiled_literal(end))
        if before.covers:
            rows = rows.where(before.pick("arrival") < uncompiled_literal(marker.after.at.arrival))
    return (
        rows
        if planning is Planning.FEW
        else lifecycle(transform).repartition_for_merge(rows, transform)
    )


def select_published(rows: Rows) -> Rows:
    """Return `rows` with only the columns of the published table."""
    away = [IS_DELETED, *UNPUBLISHED]
    if isinstance(rows, DataFrame):
        return rows.drop(*away)
    return rows.drop_columns([c for c in away if c in rows.column_names])


def _add_commit_columns(
    rows: DataFrame, transform: Definition, marker: CommitInfo, marked: bool
) -> DataFrame:
    # If all rows of some windows are replaced, no row needs a delete flag. Without an expectation,
    # the rows are exactly the published ones, so their files are committed unchanged.
    replaces = marker.replaced is not None
    plain = replaces and not marked
    deleted = [] if plain else [F.lit(False).alias(IS_DELETED) if replaces else F.col(IS_DELETED)]
    stamped = rows.select(
        *("window_start", "window_end", *transform.keys, *transform.aggregates),
        *("events", "late_events", F.col("revision").cast("int"), "timing", "final"),
        "last_arrival",
        marker.after.pick("arrival").alias("as_of"),
        uncompiled_literal(marker.commit_number).alias("commit_number"),
        F.lit(None).cast("string").alias("quality"),
        *deleted,
        *([OVERFLOWED] if marked else []),
        *([SLACK] if marked and _needs_slack(transform) else []),
    )
    if not marked:
        return stamped
    return stamped.withColumns({ROW: row_number(), KEYS: keys_as_json(transform.keys)})


def _merge_sessions(
    asset: Asset,
    marker: SessionReplacement,
    rows: DataFrame,
    scratch: TempTables,
    *,
    all_fire_once: bool,
    few: bool,
) -> DataFrame:
    """Return a row for each session that the commit may have changed, and the rows to delete.

    The commit may have changed the sessions that touch a partial in one of its ranges. `IS_DELETED`
    is true for the earlier row of such a session that no longer exists.

    Args:
        rows: the partials.
        all_fire_once: true if each session is known to fire only once, with all its events.
        few: true if the current sessions fit into memory.
    """
    warehouse, transform, near = asset.warehouse, asset.transform, marker.ranges
    at = as_of(marker.after)
    found = session.finish_windows(
        rows, transform, asset.log, at, all_fire_once=all_fire_once, near=near
    )
    current = scratch.materialize_frame(found, few=few)
    earlier = quarantine.read_computed(warehouse, transform, ())
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    earlier = earlier.where(clusters.touches_ranges(start, end, transform, near))
    same = same_window(transform, "e", "s")
    left = earlier.alias("e").join(current.alias("s"), same, "left_anti")
    return current.withColumn(IS_DELETED, F.lit(False)).unionByName(
        left.drop(*{*left.columns} - {*current.columns}).withColumn(IS_DELETED, F.lit(True)),
        allowMissingColumns=True,
    )


def find_open_from(asset: Asset, marker: CommitInfo, partials: Rows) -> int | None:
    """Return the start of the first session that later arrivals can still change.

    Return None if they can change every session, or if the windows are not sessions.

    Args:
        marker: a commit that replaces windows. Later arrivals are those after this commit.
        partials: the partials that the commit stores.
    """
    transform = asset.transform
    if not transform.window.merges:
        return None
    if isinstance(marker, SessionReplacement):
        return marker.open_from
    if marker.after.at.watermark == INFINITY:
        return closed_end(transform, marker.after)
    rows = frame(asset.warehouse.spark, partials)
    found = session.find_open_from(rows, transform, as_of(marker.after)).collect()
    return _find_first_open(transform, marker, found[0].asDict())


def _find_first_open(
    transform: Definition, marker: CommitInfo, observed: Mapping[str, int | None]
) -> int | None:
    """Return the start of the first session that later arrivals can still change.

    Return None if they can change every session, or if this is unknown.

    Args:
        observed: `open_from`, the start of the first existing session that can still change, or
            None if no existing one can. The mapping is empty if the engine did not compute it.
    """
    begin = closed_end(transform, marker.after)
    # Without an observation, which the engine may have optimized away, nothing is known.
    if begin is None or "open_from" not in observed:
        return None
    # A later event may also start a new session, no earlier than `begin`.
    earliest = observed["open_from"]
    return begin if earliest is None else min(earliest, begin)
