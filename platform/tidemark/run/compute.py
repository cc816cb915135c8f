"""Compute the rows that a plan's commit publishes, starting from the plan's events.

There are two steps: compute the new partials (`count_events`), then the rows of the windows that
the partials can change (`compute_windows`). Intermediate rows on which later steps depend are
computed once and completely (`materialize`): a few as Arrow tables in memory, many as files that
the engine writes.

A commit's published rows depend only on the commit: on its `CommitInfo` and the state after it.
They are therefore the same if a later run publishes the commit of a killed run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation

from tidemark.base.instants import INFINITY
from tidemark.compute.affected.final_windows import find_affected_range, find_final_end
from tidemark.compute.late_rows import (
    add_missing_columns,
    compute_late_loss,
    select_late_table_events,
)
from tidemark.compute.lifecycle import session
from tidemark.compute.materialize import TempTables
from tidemark.compute.pane_table import compute_panes
from tidemark.compute.windowing import as_of, count_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import IS_DELETED, VERDICT
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.engine.queries.planning import Planning
from tidemark.quality.evidence import UNPUBLISHED
from tidemark.run.committed_state import CommittedState
from tidemark.run.plan import Plan
from tidemark.run.window_rows import WindowRows, compute_rows
from tidemark.run.workload import Workload
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo, StateCommit
from tidemark.store.commits.kinds import SessionReplacement
from tidemark.store.commits.ranges import Ranges
from tidemark.store.rows import Rows, is_empty, to_frame
from tidemark.store.state import count_by_verdict, counted_column, with_commit_number


@dataclass(frozen=True)
class Output:
    """Rows that a commit writes to a table other than the published one.

    Args:
        replaced: ranges of window starts. The existing rows of windows that start in these ranges
            are replaced. `ALL_WINDOWS` replaces all rows; None only adds rows.
        grows: true to add missing columns to the table.
    """

    table: str
    rows: Rows
    comment: str
    replaced: Ranges | None
    grows: bool = False


@dataclass(frozen=True)
class Computation:
    """Everything that a run has computed for its commit, before the gate validates the rows.

    Args:
        partials: partials to store; None if the state already has them.
        counts: number of the commit's events, by code in `classification.VERDICTS`.
        windows: the changed rows, as they would be published. `IS_DELETED` is added if the rows are
            to be merged or validated, and columns of `UNPUBLISHED` if they are to be validated.
        reach: SQL condition that is true for the published rows that the commit can have changed.
            The alias of the published table is `t`.
        outputs: rows for other tables.
        open_from: for an increment over sessions, the start of the first session that later
            arrivals can still change; otherwise None.
        overflowed: true if a row has a value that exceeds its type.
    """

    partials: Rows | None
    counts: Counter[int]
    windows: Rows
    reach: str
    outputs: list[Output] = field(default_factory=list[Output])
    open_from: int | None = None
    overflowed: bool = False


def count_events(asset: Asset, plan: Plan, temp_tables: TempTables) -> Rows:
    """Return the partials that the commit adds to the state, with its commit number."""
    transform = asset.transform
    commit_info = plan.commit_info
    assert isinstance(commit_info, StateCommit)
    earlier_partials = None
    if transform.trigger.needs_rank and commit_info.adds_partials:
        earlier_partials = asset.state.read_partials(find_affected_range(transform, commit_info))
    rows = count_scope(
        asset.log, asset.counting_transform, commit_info.counted_scope(), earlier_partials
    )
    numbered = with_commit_number(rows, commit_info.commit_number)
    return temp_tables.materialize(numbered, few=plan.few)


def compute_windows(
    asset: Asset,
    plan: Plan,
    new_partials: Rows | None,
    temp_tables: TempTables,
    workload: Workload,
) -> Computation:
    """Return the rows of the windows that the commit can have changed, and rows for other tables.

    Args:
        new_partials: the partials that the commit adds; None if the state already has them.
    """
    transform = asset.transform
    commit_info = plan.commit_info
    counts = _count_by_lateness(asset, plan, new_partials)
    state = CommittedState(asset, commit_info, new_partials)
    open_sessions = None
    if transform.window.merges and commit_info.recomputed_ranges is None:
        open_sessions = Observation()
    windows = compute_rows(
        asset,
        plan,
        state,
        temp_tables,
        workload,
        open_sessions,
        is_guarded=is_guarded(asset),
    )
    outputs: list[Output] = []
    if _can_have_panes(asset, commit_info, windows):
        outputs.append(_compute_panes(asset, commit_info, state, temp_tables, workload, windows))
    if isinstance(commit_info, StateCommit) and _may_have_missed_events(asset, plan, counts):
        loss = _compute_late_loss(asset, commit_info, state, temp_tables, workload)
        outputs.append(loss)
        if commit_info.lists_late_events:
            outputs.append(_select_late_table_events(asset, commit_info, temp_tables, few=plan.few))
    open_from = None
    if open_sessions is not None:
        open_from = _find_first_open(transform, commit_info, open_sessions.get)
    return Computation(
        partials=new_partials,
        counts=counts,
        windows=windows.rows,
        reach=_describe_reach(transform, commit_info),
        outputs=outputs,
        open_from=open_from,
        overflowed=windows.overflowed,
    )


def _count_by_lateness(asset: Asset, plan: Plan, new_partials: Rows | None) -> Counter[int]:
    """Return the number of the commit's events, by code in `classification.VERDICTS`."""
    if plan.counts is not None:
        return plan.counts
    if new_partials is None:
        return Counter()
    counted = counted_column(asset.transform)
    return count_by_verdict(asset.warehouse.select_columns(new_partials, VERDICT, counted), counted)


def _describe_reach(definition: Definition, commit_info: CommitInfo) -> str:
    """Return the condition for the published rows that the commit can have changed."""
    if commit_info.recomputed_ranges is not None:
        return "TRUE"
    end = find_final_end(definition, commit_info.before)
    if end is None:
        return "TRUE"
    return f"t.window_end > timestamp_micros({end})"


def _can_have_panes(asset: Asset, commit_info: CommitInfo, windows: WindowRows) -> bool:
    """Return whether the pane table may get rows, or does not exist yet."""
    transform = asset.transform
    if transform.accumulation is None:
        return False
    if commit_info.recomputed_ranges is not None:
        return True
    if transform.window.merges and not windows.all_fire_once:
        # A session may fire, and then merge with others before the commit, so that no row shows its
        # firing.
        return True
    # Otherwise, a window that fires changes its row.
    return not is_empty(windows.rows) or not asset.warehouse.has_table(transform.panes_table)


def _compute_panes(
    asset: Asset,
    commit_info: CommitInfo,
    state: CommittedState,
    temp_tables: TempTables,
    workload: Workload,
    windows: WindowRows,
) -> Output:
    transform = asset.transform
    previous = None
    if commit_info.recomputed_ranges is None:
        previous = as_of(commit_info.before)
    panes = compute_panes(
        state.read_affected(workload.merging),
        transform,
        asset.log,
        as_of(commit_info.after),
        previous,
        all_fire_once=windows.all_fire_once,
    )
    panes = panes.withColumn("commit_number", uncompiled_literal(commit_info.commit_number))
    return Output(
        transform.panes_table,
        temp_tables.materialize(panes, few=workload.few_partials),
        f"Every firing of {transform.name}",
        commit_info.recomputed_ranges,
    )


def _may_have_missed_events(asset: Asset, plan: Plan, counts: Counter[int]) -> bool:
    """Return whether the commit may have events that are too late or have no event time."""
    if classification.TOO_LATE in counts or classification.NO_EVENT_TIME in counts:
        return True
    commit_info = plan.commit_info
    replaces = commit_info.recomputed_ranges is not None
    # If a commit is published again, a later commit may have replaced some of its partials. The
    # counts are then too low.
    if not (replaces or commit_info.is_first_commit or plan.taken_up):
        return False
    return asset.warehouse.has_table(asset.counting_transform.late_table)


def _compute_late_loss(
    asset: Asset,
    commit_info: StateCommit,
    state: CommittedState,
    temp_tables: TempTables,
    workload: Workload,
) -> Output:
    lacking = state.find_lacking()
    loss = compute_late_loss(
        state.read_partials(lacking), asset.counting_transform, asset.log, commit_info
    )
    return Output(
        asset.counting_transform.late_loss_table,
        temp_tables.materialize(loss, few=workload.few_partials),
        f"Changes that too-late events would make in {asset.transform.name}",
        None if commit_info.recomputed_ranges is None else lacking,
    )


def _select_late_table_events(
    asset: Asset, commit_info: StateCommit, temp_tables: TempTables, *, few: bool
) -> Output:
    """Return the late events of a commit. They stay in the table even if a correction counts them.

    Args:
        few: true if the commit has few events.
    """
    warehouse = asset.warehouse
    events = select_late_table_events(asset.log, asset.counting_transform, commit_info)
    if not commit_info.is_first_commit and not commit_info.replaces_all:
        events = add_missing_columns(warehouse, asset.counting_transform, events)
    with warehouse.use_planning(Planning.for_size(few)):
        materialized = temp_tables.materialize(events, few=few)
    return Output(
        asset.counting_transform.late_table,
        materialized,
        f"Events that are too late for {asset.transform.name} or have no event time",
        commit_info.recomputed_ranges,
        grows=True,
    )


def is_guarded(asset: Asset) -> bool:
    """Return whether an asset's rows are validated before they are published.

    The rows are validated if the asset has expectations, or if it has a quarantine table because
    values of windows overflowed.
    """
    transform = asset.transform
    return bool(transform.expectations) or asset.warehouse.has_table(transform.quarantine_table)


def select_published(rows: Rows) -> Rows:
    """Return `rows` with only the columns of the published table."""
    unpublished = [IS_DELETED, *UNPUBLISHED]
    if isinstance(rows, DataFrame):
        return rows.drop(*unpublished)
    return rows.drop_columns([name for name in unpublished if name in rows.column_names])


def find_open_from(asset: Asset, commit_info: CommitInfo, partials: Rows) -> int | None:
    """Return the start of the first session that later arrivals can still change.

    Return None if they can change every session, or if the windows are not sessions.

    Args:
        commit_info: a commit that replaces windows. Later arrivals are those after this commit.
        partials: the partials that the commit stores.
    """
    transform = asset.transform
    if not transform.window.merges:
        return None
    if isinstance(commit_info, SessionReplacement):
        return commit_info.open_from
    if commit_info.after.at.watermark == INFINITY:
        return find_final_end(transform, commit_info.after)
    rows = to_frame(asset.warehouse.spark, partials)
    found = session.find_open_from(rows, transform, as_of(commit_info.after)).collect()
    return _find_first_open(transform, commit_info, found[0].asDict())


def _find_first_open(
    definition: Definition, commit_info: CommitInfo, observed: Mapping[str, int | None]
) -> int | None:
    """Return the start of the first session that later arrivals can still change.

    Return None if they can change every session, or if this is unknown.

    Args:
        observed: `open_from`, the start of the first existing session that can still change, or
            None if no existing one can. The mapping is empty if the engine did not compute it.
    """
    begin = find_final_end(definition, commit_info.after)
    # Without an observation, which the engine may have optimized away, nothing is known.
    if begin is None or "open_from" not in observed:
        return None
    # A later event may also start a new session, no earlier than `begin`.
    earliest = observed["open_from"]
    if earliest is None:
        return begin
    return min(earliest, begin)
