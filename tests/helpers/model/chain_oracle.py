"""An oracle for chains: the definition over a whole event log, in plain Python."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from helpers.model.join_oracle import BaseArrival
from tidemark.base.instants import INFINITY

Window = tuple[int, int]
Assign = Callable[[int], Sequence[Window]]


def chain_by_definition(
    arrivals: Sequence[BaseArrival], *, assign: Assign, gap: int, lateness: int
) -> list[tuple[Any, ...]]:
    """Return the rows of a chain: step, start, end, key, and the count and the sum of `v`.

    They are in the order of the chain.

    Args:
        assign: returns the windows of an event time; for sessions, those of a single event.
        gap: the gap of sessions; 0 for other windows.
        lateness: the allowed lateness.
    """
    counted = defaultdict[tuple[str | None, Window], list[int]](list)
    for arrival in arrivals:
        for row in arrival.rows:
            for start, end in [] if row["t"] is None else assign(row["t"]):
                if arrival.before is None or arrival.before < end + lateness:
                    counted[row["k"], (start, end)].append(row["v"])
    rows = list[tuple[Any, ...]]()
    for (key, (start, end)), values in (_merge(counted) if gap else counted).items():
        settled = min(end + lateness + gap, INFINITY)
        step = next(
            (n for n, a in enumerate(arrivals) if a.after is not None and a.after >= settled), None
        )
        if step is not None:
            rows.append((step, start, end, key, len(values), sum(values)))
    return sorted(rows, key=lambda r: (r[0], r[2], r[1], r[3] is not None, r[3]))


def _merge(
    alone: dict[tuple[str | None, Window], list[int]],
) -> dict[tuple[str | None, Window], list[int]]:
    """Return sessions of events, merged if they overlap or touch."""
    merged = dict[tuple[str | None, Window], list[int]]()
    order = sorted(alone.items(), key=lambda item: (str(item[0][0]), item[0][1]))
    for key, group in groupby(order, lambda item: item[0][0]):
        start = end = None
        values = list[int]()
        for (_, window), own in group:
            if start is not None and end is not None and window[0] > end:
                merged[key, (start, end)], start, values = values, None, []
            start = window[0] if start is None else start
            end, values = window[1], values + own
        assert start is not None
        assert end is not None
        merged[key, (start, end)] = values
    return merged
