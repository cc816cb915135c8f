"""Scopes: the events that a computation counts, and the windows in which it counts them."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import Ranges


@dataclass(frozen=True)
class Scope:
    """The events to count, and the windows to count them in.

    Args:
        after, through: only events of the arrivals (after, through].
        ranges: only windows that start in one of these ranges; all windows if empty.
        complete: true if too-late events count.
        arrivals: a BOOLEAN column that is true if a row's `arrival` counts in the row's window;
            None if all arrivals in (after, through] count in all windows.
    """

    after: int
    through: int
    ranges: Ranges = ()
    complete: bool = False
    arrivals: Column | None = None

    @classmethod
    def from_coverage(
        cls, coverage: Coverage, ranges: Ranges = (), *, complete: bool = False
    ) -> "Scope":
        """Return the scope of windows that are recounted, each up to its arrival in `coverage`."""
        through = _common_arrival(coverage, ranges)
        if through is not None:
            return cls(-1, through, ranges, complete)
        seen = F.col("arrival") <= coverage.position_column("arrival")
        return cls(-1, coverage.newest_arrival, ranges, complete, seen)

    @classmethod
    def beyond_coverage(
        cls, coverage: Coverage, through: int, ranges: Ranges = (), *, complete: bool = False
    ) -> "Scope":
        """Return the scope of windows that have counted the arrivals in `coverage`, and are to be
        up to date through the arrival `through`. If they are already, it has no arrivals."""
        counted = _common_arrival(coverage, ranges)
        if counted is not None:
            return cls(counted, through, ranges, complete)
        is_new = F.col("arrival") > coverage.position_column("arrival")
        return cls(coverage.at.arrival, through, ranges, complete, is_new)


def _common_arrival(coverage: Coverage, ranges: Ranges) -> int | None:
    """Return the arrival through which all windows of the ranges are up to date.

    Return None if that arrival differs between the windows, or may differ.
    """
    if not coverage.covers:
        return coverage.at.arrival
    if not ranges:
        return None
    ahead = [backfilled for backfilled in coverage.covers if backfilled.overlaps_any(ranges)]
    if not ahead:
        return coverage.at.arrival
    # If `coverage.whole`, a backfilled range does not apply to windows that start in the range and
    # end after it.
    if coverage.whole:
        return None
    arrival = ahead[0].at.arrival
    if any(backfilled.at.arrival != arrival for backfilled in ahead):
        return None
    for start, end in ranges:
        if not any(cover.start <= start and end <= cover.end for cover in ahead):
            return None
    return arrival
