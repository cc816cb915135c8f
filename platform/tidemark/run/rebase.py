"""Rebase a backfill onto commits that a stream has made while the backfill was computed.

A stream that processes one arrival per second commits many times during a long backfill. If the
backfill started over each time, it would never finish. If the stream is ahead of the backfill, only
the arrivals in between are counted in addition, which are few in comparison. Otherwise, the
backfill's partials are already complete.
"""

from dataclasses import replace

from tidemark.base.counts import format_count
from tidemark.base.errors import ConflictError
from tidemark.compute.materialize import TempTables
from tidemark.compute.windowing import count_scope
from tidemark.define.helper_columns import MARKER
from tidemark.run import commit
from tidemark.run.plan import Plan
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.kinds import Cause, Replacement
from tidemark.store.commits.scope import Scope
from tidemark.store.epoch import ErasedMeanwhileError
from tidemark.store.rows import Rows, to_frame
from tidemark.store.state import with_commit_number

MAX_CONFLICTS = 20
"""Number of commit conflicts after which a run gives up; until then, it recomputes or rebases."""


class Conflicts:
    """A counter of a run's commit conflicts, which ends the run if there are too many."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        self.count = 0

    def count_conflict(self) -> None:
        self.count += 1
        if self.count >= MAX_CONFLICTS:
            raise conflict_error(self.asset, MAX_CONFLICTS)


def store_plan(
    asset: Asset, todo: Plan, partials: Rows, temp_tables: TempTables, conflicts: Conflicts
) -> Plan:
    """Commit a plan's partials to the state, on top of the newest commit.

    Returns:
        The plan as it was committed.

    Raises:
        ErasedMeanwhileError: events were erased since the plan was made.
        ConflictError: another run committed first, and the plan can't be rebased onto its commits;
            or there were too many conflicts.
    """
    while True:
        try:
            commit.store_partials(asset, todo, partials)
        except ErasedMeanwhileError:
            raise
        except ConflictError:
            moved = _rebase_plan(asset, todo, partials, temp_tables)
            if moved is None:
                raise
            conflicts.count_conflict()
            todo, partials = moved
        else:
            return todo


def conflict_error(asset: str, attempts: int) -> ConflictError:
    """Return the error of a run that gives up after a number of commit conflicts."""
    return ConflictError(
        f"Gave up after {format_count(attempts, 'commit conflict')} with other runs of '{asset}'. "
        "Retry when fewer runs are active."
    )


def _rebase_plan(
    asset: Asset, todo: Plan, partials: Rows, temp_tables: TempTables
) -> tuple[Plan, Rows] | None:
    commit_info = todo.commit_info
    if not isinstance(commit_info, Replacement) or commit_info.cause is not Cause.BACKFILL:
        return None
    if asset.transform.trigger.needs_rank:
        # Such a trigger needs all events in one pass, so they can't be counted in two parts.
        return None
    newer_commits = asset.state.read_commits_after(commit_info.commit_number - 1)
    if not newer_commits or any(newer.recomputed_ranges is not None for newer in newer_commits):
        return None
    newest = newer_commits[-1]
    coverage_after = commit_info.after
    counted = to_frame(asset.warehouse.spark, partials).drop("commit_number", MARKER)
    # The result must not include arrivals that a stream has counted from another event log.
    is_other_log = lineage.is_of_another_log(asset, newest)
    if is_other_log and commit_info.ranges:
        return None
    newest_position = newest.after.at
    if commit_info.ranges and coverage_after.at.arrival > newest_position.arrival:
        # The windows outside of the ranges are up to date only as far as the stream is.
        return None
    if not is_other_log:
        between = Scope.beyond_coverage(
            coverage_after,
            newest_position.arrival,
            commit_info.ranges,
            complete=commit_info.complete,
        )
        if between.through > between.after:
            further = count_scope(asset.log, asset.counting_transform, between)
            further_partials = temp_tables.materialize(further, few=todo.few)
            counted = counted.unionByName(to_frame(counted.sparkSession, further_partials))
        if newest_position.arrival > coverage_after.at.arrival:
            coverage_after = coverage_after.advance_to(newest_position)
    commit_number = newest.commit_number + 1
    partials = temp_tables.materialize(with_commit_number(counted, commit_number), few=todo.few)
    defined = commit_number
    if commit_info.parts is None:
        defined = commit_info.defined
    rebased = replace(
        commit_info,
        commit_number=commit_number,
        before=newest.after,
        after=coverage_after,
        # It is unknown which sessions are open. The next run determines this.
        open_from=None,
        defined=defined,
    )
    return replace(todo, commit_info=rebased), partials
