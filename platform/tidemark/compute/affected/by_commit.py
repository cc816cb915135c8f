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
    commits: Sequence[StateCommit], known: int, transform: Definition, bound: int | None
) -> Iterator[StateCommit]:
    """Yield the commits that change windows that the chain has already read.

    Args:
        commits: the records of all commits of the asset (of a roll-up: of its base), in order.
        known: the number of the newest commit that the chain has taken into account.
        bound: the latest possible end of a window that the chain has read, in microseconds; None
            if the chain can't have read any window.
    """
    if bound is None:
        return
    for number, commit in enumerate(commits):
        if (
            commit.commit_number > known
            and _reaches(commit, transform, bound)
            and not _repeats(commit, commits[:number])
        ):
            yield commit


def can_repeat_rows(commits: Sequence[StateCommit], change: StateCommit) -> bool:
    """Return whether the event log suffices to compute the asset's rows before and after a commit.

    Args:
        commits: the records of all commits of the asset (of a roll-up: of its base), in order.
        change: the record of that commit, one of `commits`.
    """
    through = [each for each in commits if each.commit_number <= change.commit_number]
    earlier = drop_superseded(through[:-1])
    return isinstance(change, Replacement) and all(
        each.definition == change.definition for each in earlier
    )


def _reaches(commit: StateCommit, transform: Definition, bound: int) -> bool:
    """Return whether a commit may recompute a window that ends at the bound or earlier."""
    if commit.recomputed is None:
        return False
    if not commit.recomputed:
        return True
    # The ends of overlapping windows and of sessions in a range vary. They are only known to be
    # after the range's start.
    varies = transform.window.overlaps or transform.window.merges
    last_end = transform.window.last_window_end
    starts = (start for start, _ in commit.recomputed)
    return any((start + 1 if varies else last_end(start + 1)) <= bound for start in starts)


def _repeats(commit: StateCommit, earlier: Sequence[StateCommit]) -> bool:
    """Return whether a commit computes the same rows as the earlier commits."""
    return (
        isinstance(commit, Replacement)
        and not commit.complete
        and all(
            each.definition == commit.definition and each.late_events == commit.late_events
            for each in drop_superseded(earlier)
        )
    )
