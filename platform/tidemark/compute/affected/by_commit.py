"""Determine whether a commit changes windows that a chain has already read.

Arrivals never change a final window. A correction, a complete backfill, and a promoted rebuild do.
A backfill that excludes too-late events computes the same rows again, unless one of the commits
that it replaces had another definition, or included too-late events. The same is true of the
recomputation after an erasure, which continues into the chain itself.
"""

from collections.abc import Sequence

from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import StateCommit, drop_superseded
from tidemark.store.commits.kinds import Cause, Replacement


def find_change(
    commits: Sequence[StateCommit], known: int, transform: Definition, bound: int | None
) -> StateCommit | None:
    """Return the first commit after `known` that changes windows already read; None if none.

    Args:
        commits: the facts of all commits of the asset, or of its base, in order.
        bound: the end through which windows have been taken; None if none has.
    """
    if bound is None:
        return None
    for number, commit in enumerate(commits):
        if (
            commit.commit_number > known
            and _reaches(commit, transform, bound)
            and not _repeats(commit, commits[:number])
        ):
            return commit
    return None


def _reaches(commit: StateCommit, transform: Definition, bound: int) -> bool:
    """Return whether a commit recomputes a window with an end up to the bound."""
    if commit.recomputed is None:
        return False
    if not commit.recomputed:
        return True
    # Overlapping windows and sessions have different ends, all of them after the start.
    varies = transform.window.overlaps or transform.window.merges
    last_end = transform.window.last_window_end
    starts = (start for start, _ in commit.recomputed)
    return any((start + 1 if varies else last_end(start + 1)) <= bound for start in starts)


def _repeats(commit: StateCommit, earlier: Sequence[StateCommit]) -> bool:
    """Return whether a commit computes the same rows that the earlier ones have computed."""
    return (
        isinstance(commit, Replacement)
        and commit.cause is not Cause.CORRECTION
        and not commit.complete
        and all(
            each.definition == commit.definition and each.late_events == commit.late_events
            for each in drop_superseded(earlier)
        )
    )
