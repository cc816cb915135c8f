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


def _common_arrival(coverage: Coverage, ranges: Ranges) -> int | None:
    """Return the arrival through which all windows of the ranges are up to date.

    Return None if that arrival differs between the windows, or may differ.
    """
    if not ranges or not coverage.covers:
        return None if coverage.covers else coverage.at.arrival
    ahead = [
        c for c in coverage.covers if any(start < c.end and c.start < end for start, end in ranges)
    ]
    if not ahead:
        return coverage.at.arrival
    is_covered = all(any(c.start <= start and end <= c.end for c in ahead) for start, end in ranges)
    arrivals = {c.at.arrival for c in ahead}
    # If `coverage.whole`, a backfilled range does not apply to windows that start in the range and
    # end after it.
    if is_covered and len(arrivals) == 1 and not coverage.whole:
        return arrivals.pop()
    return None
