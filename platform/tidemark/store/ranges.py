"""Ranges of instants: which windows a run is about."""

from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise

from tidemark.base.instants import BEGINNING, INFINITY

Ranges = tuple[tuple[int, int], ...]
"""Ranges [start, end) of instants, in microseconds."""

EVERYTHING: Ranges = ((BEGINNING, INFINITY),)
"""Wherever a window can start."""

NOWHERE: Ranges = ((0, 0),)
"""Where nothing is: no range at all would be everywhere."""

MOST = 100
"""Ranges in one correction: a condition on more would cost more than the windows it leaves out."""


def between(start: int | None, end: int | None) -> Ranges:
    """The ranges with these bounds; none where there is no bound."""
    return () if start is None or end is None else ((start, end),)


def within(ranges: Ranges, column: str = "window_start") -> str:
    """A SQL condition: the column, a TIMESTAMP, is in one of the ranges; without any, always."""
    inside = [
        f"({column} >= timestamp_micros({start}) AND {column} < timestamp_micros({end}))"
        for start, end in ranges
    ]
    return f"({' OR '.join(inside)})" if inside and ranges != EVERYTHING else "TRUE"


def joined(ranges: Iterable[tuple[int, int]], most: int = MOST) -> Ranges:
    """Ranges of which those that touch are made one, then the nearest, until `most` are left."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if apart and start <= apart[-1][1]:
            start, end = apart[-1][0], max(apart.pop()[1], end)
        apart.append((start, end))
    gaps = [(after[0] - before[1], i) for i, (before, after) in enumerate(pairwise(apart), 1)]
    cuts = [0, *sorted(i for _, i in nlargest(most - 1, gaps)), len(apart)]
    return tuple((apart[i][0], apart[j - 1][1]) for i, j in pairwise(cuts) if i < j)
