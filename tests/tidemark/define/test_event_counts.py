"""Tests that a run's facts count each event once, in however many windows it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    ingest,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import NIGHTLY
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Cumulating, Session, Sliding, Tumbling, Window
from tidemark.run.runner import backfill, incremental
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

LAST = [Event(T0 + 3 * MINUTE, "a", 0.5), Event(T0 + 3 * MINUTE, "a", 0.5), Event(None, "a", 0.5)]
ARRIVALS = [*some_arrivals(seed=11, count=4, size=30), LAST]
LATENESS = 2 * MINUTE
CLASSES = ("on_time", "late", "too_late", "no_event_time", "duplicate")
WINDOWS: dict[str, tuple[Window, int, int]] = {
    "tumbling": (Tumbling("1 minute"), MINUTE, MINUTE),
    "sliding": (Sliding("3 minutes", "1 minute"), 3 * MINUTE, MINUTE),
    "hardly": (Sliding("3 minutes", "2 minutes"), 3 * MINUTE, 2 * MINUTE),
    "cumulating": (Cumulating("4 minutes", "1 minute"), MINUTE, MINUTE),
    "session": (Session("1 minute"), 0, 0),
}
"""Each kind of window, the length of the first window to end with an event, and the step between
such windows. A session's first window starts at the event."""


def first_end(ts: int, kind: str) -> int:
    """Return the end of the first window to end that contains an event at `ts`."""
    _, size, step = WINDOWS[kind]
    if not step:
        return ts + MINUTE
    return (ts - size) // step * step + step + size


def expected(kind: str, arrivals: Sequence[Sequence[Event]] = ARRIVALS) -> Counter[str]:
    """Return the events of the log by their lateness in their first window."""
    counts, watermark, newest = Counter[str](), None, 0
    seen = set[tuple[str | None, int | None]]()
    for events in arrivals:
        for e in events:
            if e.ts is None:
                counts["no_event_time"] += 1
                continue
            if (e.key, e.ts) in seen:
                counts["duplicate"] += 1
                continue
            if e.key is not None:
                seen.add((e.key, e.ts))
            lag = None if watermark is None else watermark - first_end(e.ts, kind)
            if lag is None or lag < 0:
                counts["on_time"] += 1
            else:
                counts["late" if lag < LATENESS else "too_late"] += 1
        newest = max([newest, *(e.ts for e in events if e.ts is not None)])
        watermark = newest - MINUTE
    return counts


def counted(runs: Sequence[RunFacts | None]) -> Counter[str]:
    total = Counter[str]()
    for facts in runs:
        if facts is not None:
            total.update({name: getattr(facts, name) for name in CLASSES})
            assert facts.events == sum(getattr(facts, name) for name in CLASSES)
    return +total


SLOW = ("hardly", "cumulating", "session")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=NIGHTLY if k in SLOW else []) for k in WINDOWS]
)
def test_each_event_counts_once(warehouse: Warehouse, kind: str) -> None:
    """This holds for a backfill, for runs of two arrivals, and for later backfills of ranges."""
    window = WINDOWS[kind][0]
    unique = Deduplicate("sensor", within="0 seconds")
    asset = replace(PER_MINUTE, window=window, allowed_lateness=LATENESS, deduplicate=unique)
    ingest(warehouse, READINGS, ARRIVALS)
    want = expected(kind)
    assert all(want[name] for name in CLASSES)
    assert want.total() == sum(map(len, ARRIVALS))
    assert counted([backfill(warehouse, renamed(asset, "whole"))]) == want
    steps = renamed(asset, "steps")
    assert counted([incremental(warehouse, steps, limit=2) for _ in range(3)]) == want
    if window.merges:
        return
    bounds = [T0 - 20 * MINUTE, T0 - MINUTE, T0 + 20 * MINUTE]
    parts = [backfill(warehouse, steps, *between) for between in pairwise(bounds)]
    timed = Counter({name: n for name, n in want.items() if name != "no_event_time"})
    assert counted(parts) == timed
