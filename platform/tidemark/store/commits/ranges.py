"""Represent the windows that a run affects as ranges of their starts."""

from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise

from tidemark.base import thresholds

Ranges = tuple[tuple[int, int], ...]
"""Ranges [start, end) of instants, in microseconds."""

ALL_WINDOWS: Ranges = ()
"""Ranges that contain all window starts."""

NO_WINDOWS: Ranges = ((0, 0),)
"""Ranges that contain no window start."""


def range_between(start: int | None, end: int | None) -> Ranges:
    """Return the range [start, end) as ranges; `ALL_WINDOWS` if a bound is None."""
    if start is None or end is None:
        return ALL_WINDOWS
    return ((start, end),)


def starts_within(ranges: Ranges, column: str = "window_start") -> str:
    """Return the SQL condition that a TIMESTAMP column is in a range; TRUE without ranges."""
    conditions = list[str]()
    for start, end in ranges:
        is_after_start = f"{column} >= timestamp_micros({start})"
        conditions.append(f"({is_after_start} AND {column} < timestamp_micros({end}))")
    if conditions:
        return f"({' OR '.join(conditions)})"
    return "TRUE"


def merge_ranges(
    ranges: Iterable[tuple[int, int]], max_ranges: int = thresholds.FILTER_RANGES
) -> Ranges:
    """Merge touching ranges, then those with the smallest gaps, down to `max_ranges` ranges."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if apart and start <= apart[-1][1]:
            first_start, previous_end = apart.pop()
            apart.append((first_start, max(previous_end, end)))
        else:
            apart.append((start, end))
    gaps = list[tuple[int, int]]()
    for index, (before, after) in enumerate(pairwise(apart), 1):
        gaps.append((after[0] - before[1], index))
    # Only the largest gaps remain: each is the index of the first range after it.
    cuts = sorted(index for _, index in nlargest(max_ranges - 1, gaps))
    merged = list[tuple[int, int]]()
    for first, end_index in pairwise([0, *cuts, len(apart)]):
        if first < end_index:
            merged.append((apart[first][0], apart[end_index - 1][1]))
    return tuple(merged)
