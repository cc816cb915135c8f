"""An oracle for chains: the definition over a whole event log, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from helpers.model.join_oracle import BaseArrival
from helpers.model.oracle import simulate
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


def changes_by_definition(scenario: dict[str, Any], items: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a chain of changes: step, start, end, key, retraction, `n`, and `v`.

    Args:
        scenario: a scenario of the oracle with retracting panes, the key `k` and the aggregates `n`
            and `v`, without its arrivals.
        items: the arrivals; the source ends after them.
    """
    rows, before = list[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for step in range(len(items) + 1):
        given = {**scenario, "arrivals": list(items[: step + 1]), "open": step < len(items)}
        panes = Counter(
            tuple(p[name] for name in ("window_start", "window_end", "k", "retraction", "n", "v"))
            for p in simulate({"name": "", **given})["panes"]
        )
        fired, before = panes - before, panes
        # A row and its equal retraction cancel.
        taken_back = Counter(
            {(*pane[:3], not pane[3], *pane[4:]): count for pane, count in fired.items()}
        )
        rows += [(step, *pane) for pane in (fired - taken_back).elements()]
    return sorted(rows, key=str)


def net_by_definition(
    rows: Sequence[Mapping[str, Any]], size: int
) -> dict[tuple[int, str | None], tuple[int, int | None]]:
    """Return the net count and the net sum of changes by tumbling window and key.

    Args:
        rows: the rows of the chain, with instants in microseconds; rows that are too late for their
            window are left out.
        size: the size of the windows, without lateness.
    """
    found = defaultdict[tuple[int, str | None], list[int]](lambda: [0, 0])
    for row in rows:
        start = row["window_last"] // size * size
        if row["watermark"] is None or row["watermark"] < start + size:
            sign = -1 if row["retraction"] else 1
            net = found[start, row["k"]]
            net[0] += sign
            net[1] += sign * row["v"]
    return {window: (n, v if n else None) for window, (n, v) in found.items()}


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


def net_rows(
    rows: Sequence[Mapping[str, Any]], values: Sequence[str] = ("k", "n", "v")
) -> list[tuple[Any, ...]]:
    """Return the rows of a chain of changes that are not retracted: start, end, and values.

    They are sorted as text.

    Args:
        rows: all rows in the order of the event log, with instants in microseconds.
        values: the columns of the asset's keys and aggregates.
    """
    net = Counter[tuple[Any, ...]]()
    for r in rows:
        row = (r["window_first"], r["window_last"] + 1, *(r[name] for name in values))
        net[row] += -1 if r["retraction"] else 1
        assert net[row] in (0, 1)
    return sorted((+net).elements(), key=str)
