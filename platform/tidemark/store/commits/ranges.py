"""Represent the windows that a run affects as ranges of their starts."""

from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise

from tidemark.base import thresholds

Ranges = tuple[tuple[int, int], ...]
"""Ranges [start, end) of instants, in microseconds."""

NOWHERE: Ranges = ((0, 0),)
"""Ranges without any window start. An empty tuple would stand for all window starts."""


def range_between(start: int | None, end: int | None) -> Ranges:
    """Return the range [start, end) as ranges; an empty tuple (unbounded) if a bound is None."""
    if start is None or end is None:
        return ()
    return ((start, end),)


def starts_within(ranges: Ranges, column: str = "window_start") -> str:
    """Return the SQL condition that a TIMESTAMP column is in a range; TRUE without ranges."""
    inside = [
        f"({column} >= timestamp_micros({start}) AND {column} < timestamp_micros({end}))"
        for start, end in ranges
    ]
    if inside:
        return f"({' OR '.join(inside)})"
    return "TRUE"


def merge_ranges(
    ranges: Iterable[tuple[int, int]], max_ranges: int = thresholds.FILTER_RANGES
) -> Ranges:
    """Merge touching ranges, then those with the smallest gaps, down to `max_ranges` ranges."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if apart and start <= apart[-1][1]:
            start = apart[-1][0]
            end = max(apart.pop()[1], end)
        apart.append((start, end))
    gaps = [(after[0] - before[1], i) for i, (before, after) in enumerate(pairwise(apart), 1)]
    cuts = [0, *sorted(i for _, i in nlargest(max_ranges - 1, gaps)), len(apart)]
    return tuple((apart[i][0], apart[j - 1][1]) for i, j in pairwise(cuts) if i < j)
