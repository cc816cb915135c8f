"""Determine whether a commit changes windows that a chain has already read.

Arrivals never change a final window. A correction, a backfill that includes too-late events, and a
promoted rebuild do. A backfill that excludes too-late events computes the same rows again, unless
one of the commits that it replaces had another definition, or included too-late events. The same
rule applies to the recomputation after an erasure. It also changes the rows of windows that had
erased events, but the erasure itself makes the same changes in the chain's event log.
"""

from collections.abc import Iterator, Sequence

from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import StateCommit, drop_superseded
from tidemark.store.commits.kinds import Replacement


def find_changes(
    commits: Sequence[StateCommit], known_number: int, definition: Definition, bound: int | None
) -> Iterator[StateCommit]:
    """Yield the commits that change windows that the chain has already read.

    Args:
        commits: the records of all commits of the asset (of a roll-up: of its base), in order.
        known_number: the number of the newest commit that the chain has taken into account.
        bound: the latest possible end of a window that the chain has read, in microseconds; None
            if the chain can't have read any window.
    """
    if bound is None:
        return
    for number, commit in enumerate(commits):
        is_new = commit.commit_number > known_number
        if not is_new or not _may_recompute(commit, definition, bound):
            continue
        if not _computes_same_rows(commit, commits[:number]):
            yield commit


def can_repeat_rows(commits: Sequence[StateCommit], change: StateCommit) -> bool:
    """Return whether the event log suffices to compute the asset's rows before and after a commit.

    Args:
        commits: the records of all commits of the asset (of a roll-up: of its base), in order.
        change: the record of that commit, one of `commits`.
    """
    earlier = [commit for commit in commits if commit.commit_number < change.commit_number]
    definitions = {commit.definition for commit in drop_superseded(earlier)}
    return isinstance(change, Replacement) and definitions <= {change.definition}


def _may_recompute(commit: StateCommit, definition: Definition, bound: int) -> bool:
    """Return whether a commit may recompute a window that ends at the bound or earlier."""
    if commit.recomputed_ranges is None:
        return False
    if not commit.recomputed_ranges:
        return True
    # The ends of overlapping windows and of sessions in a range vary. They are only known to be
    # after the range's start.
    ends_vary = definition.window.overlaps or definition.window.merges
    for start, _ in commit.recomputed_ranges:
        first_end = start + 1
        if not ends_vary:
            first_end = definition.window.last_window_end(start + 1)
        if first_end <= bound:
            return True
    return False


def _computes_same_rows(commit: StateCommit, earlier: Sequence[StateCommit]) -> bool:
    """Return whether a commit computes the same rows as the earlier commits."""
    if not isinstance(commit, Replacement) or commit.complete:
        return False
    for earlier_commit in drop_superseded(earlier):
        has_same_definition = earlier_commit.definition == commit.definition
        if not has_same_definition or earlier_commit.late_events != commit.late_events:
            return False
    return True
