"""Plan a run from the timeline, state and ledger, without a query to the engine.

A plan describes one commit of the state: either an earlier commit that was not completely
published, or the commit that this run will make. A run without a plan has nothing to do and ends.
"""

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from tidemark.base import thresholds
from tidemark.compute import rollups
from tidemark.compute.affected.by_events import (
    find_affected_windows,
    find_windows_with_late_loss,
)
from tidemark.compute.affected.by_time import can_change
from tidemark.compute.lifecycle.fragments import widen_to_cells
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import describe_parts
from tidemark.engine.queries.planning import Planning
from tidemark.run.admission import Admission
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo, StateCommit, drop_superseded
from tidemark.store.commits.conditions import Condition
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.kinds import Cause, Increment, Replacement, SessionReplacement
from tidemark.store.commits.ranges import Ranges, range_between
from tidemark.store.event_log.arrival import Arrival, no_arrivals
from tidemark.store.ledger import ENDED

_C = TypeVar("_C", bound=StateCommit)


@dataclass(frozen=True)
class Plan:
    """A decision for one run: which commit to make and publish, and how to compute it.

    Args:
        commit_info: the record of the commit.
        few: true if the commit has few events.
        repeated_planning: the engine's planning mode for a caller that runs repeatedly; None for
            other runs.
        stored: true if the state already has the commit, so that it only has to be published.
        counts: number of the commit's events, by code in `classification.VERDICTS`; None if this
            is not known before the events are counted.
        limited_by: the name of the limit that leaves arrivals to the next run; None if all arrivals
            are taken.
        taken_up: true if another run began the commit, so that the duration of its steps is
            unknown.
        ended: end times of the steps so far in microseconds, by the ledger's column names.
    """

    commit_info: CommitInfo
    few: bool
    stored: bool = False
    counts: Counter[int] | None = None
    taken_up: bool = False
    repeated_planning: Planning | None = None
    limited_by: str | None = None
    ended: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def counting(self) -> Planning:
        """The engine's planning mode for counting the events."""
        return self.repeated_planning or Planning.for_size(self.few)

    def with_end_of(self, step: str) -> "Plan":
        """Return the plan with the current time as the end of a step (a key of `ledger.ENDED`).

        Return the plan unchanged if another run began the commit.
        """
        if self.taken_up:
            return self
        return replace(self, ended={**self.ended, ENDED[step]: time.time_ns() // 1000})


def plan_unpublished(asset: Asset, newest_commit: StateCommit) -> list[Plan]:
    """Return plans to publish the commits that are not completely published, in order.

    Usually this is at most the newest commit, which a killed run left behind. If the ledger lost
    commits, for example in a power cut, it may lack several.
    """
    if asset.rolls_up:
        return []
    published = asset.published_commit_number()
    if newest_commit.commit_number <= published:
        return []
    waiting: list[StateCommit] = []
    for commit in asset.state.read_commits_after(published):
        if commit.commit_number <= newest_commit.commit_number:
            waiting.append(commit)
    plans: list[Plan] = []
    for commit in drop_superseded(waiting):
        counts = asset.state.count_events(commit)
        few = counts.total() <= thresholds.SMALL_BATCH_ROWS
        plans.append(Plan(commit, few, stored=True, counts=counts, taken_up=True))
    return plans


def plan_increment(
    asset: Asset,
    newest_commit: StateCommit,
    last_arrival: int | None,
    admission: Admission,
    recent_arrivals: Sequence[Arrival],
) -> Plan | None:
    """Return a plan for the arrivals since the newest commit, or None if there are none.

    Arrivals without events, such as heartbeats, need no run until the passage of time changes a
    window. The next run then processes these arrivals, too.

    Args:
        newest_commit: the newest commit of the state.
        last_arrival: the last arrival to take; all arrivals by default.
        recent_arrivals: arrivals that the caller has already read, in order. If they continue
            directly from the newest commit, only they are taken.
    """
    if asset.rolls_up:
        lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)
        planned = rollups.plan_rollup(asset)
        if planned is None:
            return None
        rollup_commit, counts = planned
        few = counts.total() <= thresholds.SMALL_BATCH_ROWS
        return Plan(rollup_commit, few, stored=True, counts=counts)
    seen_arrival = newest_commit.after.at.arrival
    arrivals = [a for a in recent_arrivals if a.arrival > seen_arrival]
    if _can_wait(asset, newest_commit, arrivals):
        return None
    if not recent_arrivals or (arrivals and arrivals[0].arrival > seen_arrival + 1):
        arrivals = asset.log.read_timeline(seen_arrival, last_arrival)
        _demand_continuation(asset, newest_commit, arrivals, is_recent=False)
        if _can_wait(asset, newest_commit, arrivals):
            return None
    else:
        _demand_continuation(asset, newest_commit, arrivals, is_recent=True)
    arrivals, limited_by = admission.admit_arrivals(arrivals)
    if not arrivals:
        return None
    coverage_after = newest_commit.after.advance_to(_position_after(arrivals[-1]))
    # Another definition may have had other sessions, so read all partials by default.
    open_before = None
    if newest_commit.definition == compute_fingerprint(asset.transform):
        open_before = newest_commit.open_from
    commit_info = Increment(after=coverage_after, open_before=open_before)
    rows = sum(arrival.rows for arrival in arrivals)
    repeated_planning = None
    if recent_arrivals:
        # A caller with known arrivals runs repeatedly, so it can reuse compiled code.
        repeated_planning = Planning.for_repeated_query(rows)
    begun = _begin_commit(asset, newest_commit, commit_info)
    return Plan(
        begun,
        rows <= thresholds.SMALL_BATCH_ROWS,
        repeated_planning=repeated_planning,
        limited_by=limited_by,
    )


def _demand_continuation(
    asset: Asset, newest_commit: StateCommit, arrivals: Sequence[Arrival], *, is_recent: bool
) -> None:
    """Raise `StaleError` if an asset can't continue with these arrivals.

    Usually, the first arrival shows by itself that it follows the last one that was counted, so
    that nothing has to be read.

    Args:
        is_recent: true if the process that calls has just ingested the arrivals. It has then
            checked whether the source is stale.
    """
    checks_source = isinstance(asset.transform.source, DerivedSource) and not is_recent
    follows = bool(arrivals) and arrivals[0].follows == newest_commit.after.at.arrival_id
    if not follows or newest_commit.after.covers or checks_source:
        lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)


def _can_wait(asset: Asset, newest_commit: StateCommit, arrivals: Sequence[Arrival]) -> bool:
    """Return whether the arrivals since the newest commit need no run yet.

    They need no run if none of them has an event, and time changes no window.

    Args:
        arrivals: the last of these arrivals, in order; the first ones may be missing.
    """
    if not arrivals or any(a.rows for a in arrivals) or newest_commit.commit_number < 0:
        return False
    position_before = newest_commit.after.at
    newest = arrivals[-1]
    # More windows can change if a backfill has brought some windows ahead of the others, or if the
    # definition has changed.
    if newest_commit.after.covers or newest_commit.definition != compute_fingerprint(
        asset.transform
    ):
        return False
    first = arrivals[0].arrival
    if first > position_before.arrival + 1 and asset.log.has_events(
        position_before.arrival, first - 1
    ):
        return False

    def read(table: str, bounds: Sequence[Condition], columns: Sequence[str]) -> pa.Table | None:
        if not asset.warehouse.has_table(table):
            return None
        return asset.warehouse.load_rows(table, *bounds, columns=columns)

    return not can_change(
        read, asset.counting_transform, asset.table_id, position_before, _position_after(newest)
    )


def plan_backfill(
    asset: Asset, newest_commit: StateCommit, start: int | None, end: int | None, late_events: str
) -> Plan:
    """Return a plan that counts all arrivals so far, for the windows that start in [start, end).

    Without bounds, the plan is for all windows.
    """
    newest = asset.log.find_last_arrival()
    if newest is None:
        raise no_arrivals(asset.transform.source.name)
    complete = late_events == "include"
    ranges = range_between(start, end)
    if ranges:
        lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)
    if ranges and can_recompute_in_part(asset, newest_commit):
        return _plan_in_place(asset, newest_commit, Cause.BACKFILL, ranges, complete=complete)
    if asset.transform.window.merges:
        ranges = ()
    newest_position = _position_after(newest)
    coverage_after = newest_commit.after
    for first, bound in ranges:
        coverage_after = coverage_after.with_backfill(
            BackfilledRange(first, bound, newest_position)
        )
    return _plan_replacement(
        asset,
        newest_commit,
        Replacement(
            cause=Cause.BACKFILL,
            after=coverage_after if ranges else Coverage(newest_position),
            ranges=ranges,
            complete=complete,
        ),
    )


def plan_replay(
    asset: Asset, newest_commit: StateCommit, first_arrival: int, *, into_empty: bool
) -> Plan | None:
    """Return a plan for the windows that hold an event of arrival `first_arrival` or a later one.

    Each window stays up to date through the same arrival as before. With `into_empty`, all these
    windows are computed through the newest arrival, and the asset gets no other windows. Return
    None if these arrivals have no event in a window.
    """
    newest = asset.log.find_last_arrival()
    if newest is None:
        raise no_arrivals(asset.transform.source.name)
    if not into_empty:
        lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)
    through = newest.arrival if into_empty else newest_commit.after.newest_arrival
    ranges = find_affected_windows(asset.log, asset.counting_transform, first_arrival, through)
    if ranges is None:
        return None
    if not into_empty:
        return _plan_in_place(asset, newest_commit, Cause.BACKFILL, ranges)
    ranges = () if asset.transform.window.merges else ranges
    coverage_after = Coverage(_position_after(newest))
    return _plan_replacement(
        asset, newest_commit, Replacement(cause=Cause.BACKFILL, after=coverage_after, ranges=ranges)
    )


def plan_correction(asset: Asset, newest_commit: StateCommit) -> Plan | None:
    """Return a plan for the windows that lack too-late events, or None if no window does.

    Each window stays up to date through the same arrival as before.
    """
    lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)
    ranges = find_windows_with_late_loss(asset.warehouse, asset.transform)
    if ranges is None:
        return None
    return _plan_in_place(asset, newest_commit, Cause.CORRECTION, ranges, complete=True)


def plan_erasure(asset: Asset, newest_commit: StateCommit, ranges: Ranges) -> Plan:
    """Return a plan for windows whose events were erased from the log.

    Each window stays up to date through the same arrival as before.
    """
    lineage.demand_current_asset(asset.warehouse, asset.transform, newest_commit)
    return _plan_in_place(asset, newest_commit, Cause.ERASURE, ranges)


def can_recompute_in_part(asset: Asset, newest_commit: StateCommit) -> bool:
    """Return whether some of an asset's sessions can be recomputed without the others.

    There are two conditions:

    - The stored partials are from the current definition. A recomputed session may cross the bound
      of a range, and is then merged with stored partials from beyond the bound.
    - The asset does not keep panes. Each firing of a session would need all events of the session.
    """
    transform = asset.transform
    of_sessions = transform.window.merges and transform.accumulation is None
    return (
        of_sessions
        and newest_commit.commit_number >= 0
        and newest_commit.definition == compute_fingerprint(transform)
    )


def _plan_in_place(
    asset: Asset,
    newest_commit: StateCommit,
    cause: Cause,
    ranges: Ranges,
    *,
    complete: bool = False,
) -> Plan:
    """Return a plan that recomputes windows without counting further arrivals.

    Each window stays up to date through the same arrival as before. If some sessions can't be
    recomputed without the others, all sessions are recomputed.

    Args:
        complete: true if too-late events count.
    """
    transform = asset.transform
    coverage = newest_commit.after
    if not transform.window.merges:
        commit_info = Replacement(cause=cause, after=coverage, ranges=ranges, complete=complete)
    elif not ranges or not can_recompute_in_part(asset, newest_commit):
        commit_info = Replacement(cause=cause, after=coverage, complete=complete)
    else:
        commit_info = SessionReplacement(
            cause=cause,
            after=coverage,
            ranges=widen_to_cells(ranges, transform),
            complete=complete,
            # If too-late events count, an event that is now admitted may connect an open session
            # with earlier sessions. The start of the first open session is then unknown.
            open_from=None if complete else newest_commit.open_from,
        )
    return _plan_replacement(asset, newest_commit, commit_info)


def _plan_replacement(asset: Asset, newest_commit: StateCommit, commit_info: Replacement) -> Plan:
    return Plan(
        _begin_commit(asset, newest_commit, commit_info),
        asset.log.has_few_events(commit_info.after.newest_arrival),
    )


def _begin_commit(asset: Asset, newest_commit: StateCommit, commit_info: _C) -> _C:
    """Return a commit that begins now, after the state's newest commit `newest_commit`."""
    definition = compute_fingerprint(asset.transform)
    number = newest_commit.commit_number + 1
    same = newest_commit.definition == definition
    return replace(
        commit_info,
        run=uuid.uuid4().hex,
        started=time.time_ns() // 1000,
        commit_number=number,
        before=newest_commit.after,
        definition=definition,
        defined=newest_commit.defined if same else number,
        promoted=newest_commit.promoted,
        parts=None if same else describe_parts(asset.transform),
    )


def _position_after(arrival: Arrival) -> TimelinePosition:
    return TimelinePosition(arrival.arrival, arrival.after, arrival.arrived_at, arrival.arrival_id)
