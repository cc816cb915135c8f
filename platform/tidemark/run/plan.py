"""Plan a run from the timeline, state and ledger, without a query to the engine.

A plan is about one commit of the state: one that was not completely published, or the commit that
this run will make. A run without a plan has nothing to do and ends.
"""

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark.base.errors import DataError
from tidemark.compute import rollups
from tidemark.compute.affected.by_replay import find_affected_windows
from tidemark.compute.affected.windows_with_late_loss import find_windows_with_late_loss
from tidemark.compute.lifecycle.fragments import widen_to_cells
from tidemark.define.identity.fingerprint import fingerprint
from tidemark.define.identity.parts import parts
from tidemark.engine.queries.planning import Planning
from tidemark.run.admission import Admission
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo, Mode, drop_superseded
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.ranges import Ranges, between
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.ledger import ENDED
from tidemark.store.rows import SMALL_BATCH_ROWS


@dataclass(frozen=True)
class Plan:
    """One commit to make and publish.

    Args:
        marker: the commit.
        few: true if it has few events.
        again: the engine's planning mode for a caller that runs repeatedly; None for other runs.
        stored: true if the state already has the commit, so that it only has to be published.
        counts: its events by verdict, if they are known before it is computed.
        limited_by: the limit that leaves arrivals to the next run; None if none does.
        taken_up: true if another run began the commit, so that the duration of its steps is
            unknown.
        ended: end times of the steps so far in microseconds, by the ledger's column names.
        erasures: for an asset's first commit, the number of erasures whose events had left the log
            when it was planned; None for later commits.
    """

    marker: CommitInfo
    few: bool
    stored: bool = False
    counts: Counter[int] | None = None
    taken_up: bool = False
    again: Planning | None = None
    limited_by: str | None = None
    ended: Mapping[str, int] = field(default_factory=dict[str, int])
    erasures: int | None = None

    def first(self, erasures: int) -> "Plan":
        """Return the plan as the first commit of an asset."""
        return replace(self, erasures=erasures, marker=replace(self.marker, erasures=erasures))

    @property
    def counting(self) -> Planning:
        """The planner settings of the engine for counting the events."""
        return self.again or Planning.of(self.few)

    def after(self, step: str) -> "Plan":
        """Return the plan with the end time of a step (`ledger.ENDED`)."""
        if self.taken_up:
            return self
        return replace(self, ended={**self.ended, ENDED[step]: time.time_ns() // 1000})


def plan_unpublished(asset: Asset, last: CommitInfo) -> list[Plan]:
    """Return plans to publish the commits that are not completely published, in order.

    Usually this is at most the newest one, which a killed run left behind. A table that lost
    commits may lack several (`store.upkeep.repair`).
    """
    if asset.rolls_up or last.commit_number <= (published := asset.published_commit_number()):
        return []
    waiting = [
        commit
        for commit in asset.state.since(published)
        if commit.commit_number <= last.commit_number
    ]
    counted = [(commit, asset.state.counts(commit)) for commit in drop_superseded(waiting)]
    return [
        Plan(commit, n.total() <= SMALL_BATCH_ROWS, stored=True, counts=n, taken_up=True)
        for commit, n in counted
    ]


def plan_increment(
    asset: Asset,
    last: CommitInfo,
    through: int | None,
    admission: Admission,
    known: Sequence[Arrival],
) -> Plan | None:
    """Return a plan for the arrivals since the newest commit, or None if there are none.

    Args:
        through: the last arrival to take; all arrivals by default.
        admission: limits of the run.
        known: arrivals that the caller has already read, in order.
    """
    if asset.rolls_up:
        planned = rollups.plan(asset)
        if planned is None:
            return None
        marker, counts = planned
        return Plan(
            _begin(asset, marker), counts.total() <= SMALL_BATCH_ROWS, stored=True, counts=counts
        )
    seen = last.after.at.arrival
    arrivals = [a for a in known if a.arrival > seen]
    if not known or (arrivals and arrivals[0].arrival > seen + 1):
        arrivals = asset.log.timeline(seen, through)
    arrivals, limited_by = admission.admit(arrivals)
    if not arrivals:
        return None
    after = last.after.advance(_position(arrivals[-1]))
    same = last.definition == fingerprint(asset.transform)
    marker = CommitInfo(
        mode=Mode.INCREMENTAL,
        commit_number=last.commit_number + 1,
        before=last.after,
        after=after,
        # Another definition may have had other sessions, so read all partials.
        changing_from=last.open_from if same else None,
    )
    rows = sum(a.rows for a in arrivals)
    # A caller with known arrivals runs repeatedly, so it can reuse compiled code.
    again = Planning.again(rows) if known else None
    begun = _begin(asset, marker, last)
    return Plan(begun, rows <= SMALL_BATCH_ROWS, again=again, limited_by=limited_by)


def plan_backfill(
    asset: Asset, last: CommitInfo, start: int | None, end: int | None, late_events: str
) -> Plan:
    """Return a plan that counts all arrivals so far, for the windows that start in [start, end).

    Raises:
        DataError: the source has no arrival yet.
    """
    newest = asset.log.last()
    if newest is None:
        raise DataError(f"Source '{asset.transform.source.name}' has no arrivals yet: ingest it.")
    if start is not None and end is not None and can_recompute_in_part(asset, last):
        return _plan_in_place(asset, last, Mode.BACKFILL, ((start, end),), late_events, part=True)
    if asset.transform.window.merges:
        start, end = None, None
    at, before = _position(newest), last.after
    after = Coverage(at) if start is None else before.cover(BackfilledRange(start, end or 0, at))
    ranges = between(start, end)
    marker = CommitInfo(
        mode=Mode.BACKFILL,
        commit_number=last.commit_number + 1,
        before=before,
        after=after,
        ranges=ranges,
        late_events=late_events,
    )
    return Plan(_begin(asset, marker, last), asset.log.few(newest.arrival))


def plan_replay(asset: Asset, last: CommitInfo, since: int, *, into_empty: bool) -> Plan | None:
    """Return a plan for the windows that hold an event of arrival `since` or a later one.

    Each window is computed through the arrival that it is already complete through. With
    `into_empty`, all are computed through the newest arrival, and the asset has only these windows.
    Return None if these arrivals have no event in a window.

    Raises:
        DataError: the source has no arrival yet.
    """
    newest = asset.log.last()
    if newest is None:
        raise DataError(f"Source '{asset.transform.source.name}' has no arrivals yet: ingest it.")
    through = newest.arrival if into_empty else last.after.through
    ranges = find_affected_windows(asset.log, asset.counting, since, through)
    if ranges is None:
        return None
    merges, part = asset.transform.window.merges, can_recompute_in_part(asset, last)
    ranges = () if merges and not part else ranges
    if not into_empty:
        return _plan_in_place(asset, last, Mode.BACKFILL, ranges, "exclude", part=part)
    marker = CommitInfo(
        mode=Mode.BACKFILL,
        commit_number=last.commit_number + 1,
        before=last.after,
        after=Coverage(_position(newest)),
        ranges=ranges,
    )
    return Plan(_begin(asset, marker, last), asset.log.few(newest.arrival))


def plan_correction(asset: Asset, last: CommitInfo) -> Plan | None:
    """Return a plan for the windows that lack too-late events, or None if no window does.

    Each window is computed through the arrival that it is already complete through.
    """
    ranges = find_windows_with_late_loss(asset.warehouse, asset.transform)
    if ranges is None:
        return None
    part = can_recompute_in_part(asset, last)
    if asset.transform.window.merges and not part:
        ranges = ()
    return _plan_in_place(asset, last, Mode.CORRECTION, ranges, "include", part=part)


def plan_erasure(asset: Asset, last: CommitInfo, ranges: Ranges) -> Plan:
    """Return a plan for windows whose events have left the log.

    Each window is computed through the arrival that it is already complete through.
    """
    return _plan_in_place(asset, last, Mode.ERASURE, ranges, "exclude", part=False)


def can_recompute_in_part(asset: Asset, last: CommitInfo) -> bool:
    """Return whether some of an asset's sessions can be recomputed without the others.

    A session may cross any bound, and is merged with the stored sessions beyond it. So the stored
    sessions must be from the same definition. The asset must not keep panes, because each firing of
    a session would need all its events.
    """
    transform = asset.transform
    of_sessions = transform.window.merges and transform.accumulation is None
    return of_sessions and last.commit_number >= 0 and last.definition == fingerprint(transform)


def _plan_in_place(
    asset: Asset, last: CommitInfo, mode: Mode, ranges: Ranges, late_events: str, *, part: bool
) -> Plan:
    """Return a plan that recomputes windows, each through the arrival of its coverage.

    Args:
        part: true if they are sessions that are recomputed without the others.
    """
    stands = last.after
    marker = CommitInfo(
        mode=mode,
        commit_number=last.commit_number + 1,
        before=stands,
        after=stands,
        ranges=widen_to_cells(ranges, asset.transform) if part else ranges,
        late_events=late_events,
        # With the complete answer, an event that is admitted now may join an open session to
        # earlier ones, so the start of the first open session is unknown.
        open_from=last.open_from if part and late_events == "exclude" else None,
        merges=part,
    )
    return Plan(_begin(asset, marker, last), asset.log.few(stands.through))


def _begin(asset: Asset, marker: CommitInfo, last: CommitInfo | None = None) -> CommitInfo:
    """Return a commit that begins now, after the state's newest commit `last`.

    A roll-up passes no `last`, because it has no state.
    """
    definition = fingerprint(asset.transform)
    is_same_definition = last is None or last.definition == definition
    return replace(
        marker,
        run=marker.run or uuid.uuid4().hex,
        started=marker.started or time.time_ns() // 1000,
        definition=definition,
        defined=(-1 if last is None else last.defined)
        if is_same_definition
        else marker.commit_number,
        promoted=-1 if last is None else last.promoted,
        erasures=0 if last is None else last.erasures,
        parts=None if is_same_definition else parts(asset.transform),
    )


def _position(arrival: Arrival) -> TimelinePosition:
    return TimelinePosition(arrival.arrival, arrival.after, arrival.arrived_at)
