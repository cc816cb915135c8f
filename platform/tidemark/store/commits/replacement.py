"""Define replacements: commits that recompute some windows, or all, from all of their events."""

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope


class Cause(StrEnum):
    """Why windows are recomputed."""

    BACKFILL = "backfill"
    CORRECTION = "correction"
    ERASURE = "erasure"


@dataclass(frozen=True, kw_only=True)
class Replacement(StateCommit):
    """A commit that replaces the windows that start in its ranges.

    Args:
        ranges: ranges [start, end) of window starts; empty means all windows.
        complete: true if too-late events count.
    """

    counts_all_events = True

    cause: Cause
    ranges: Ranges = ()
    complete: bool = False

    @property
    def mode(self) -> str:
        return self.cause.value

    @property
    def recomputed(self) -> Ranges:
        return self.ranges

    @property
    def late_events(self) -> str:
        return "include" if self.complete else "exclude"

    @property
    def lists_late_events(self) -> bool:
        # A correction leaves the events that it counts in the late table.
        return self.cause is not Cause.CORRECTION

    @property
    def at(self) -> TimelinePosition:
        ahead = (
            c.at
            for c in self.after.covers
            if any(start < c.end and c.start < end for start, end in self.ranges)
        )
        return max((self.after.at, *ahead), key=attrgetter("arrival"))

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        starts, ends = zip(*self.ranges, strict=True) if self.ranges else ((), ())
        return min(starts, default=None), max(ends, default=None)

    def scope(self) -> Scope:
        return Scope.from_coverage(self.after, self.ranges, complete=self.complete)


@dataclass(frozen=True, kw_only=True)
class SessionReplacement(Replacement):
    """A replacement of session windows, which may extend beyond the ranges.

    The commit recounts the events in its ranges, joins them with the stored partials outside, and
    merges the affected sessions into the published ones.
    """

    counts_all_events = False
    # Only the present sessions around its ranges are known.
    can_repeat = False

    @property
    def replaced(self) -> None:
        return None
