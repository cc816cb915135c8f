"""Arrivals without events: which of them can change a window, and which can wait."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data.support import PER_MINUTE
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.affected.by_time import can_change, find_passed_ends
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Every, Trigger
from tidemark.define.windows import Calendar, Session, Tumbling
from tidemark.store.commits.conditions import Condition
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.rows import INSTANT

SECOND = 1_000_000
HOUR = 3_600 * SECOND
INSTANTS = ("window_end", "arrived_at")
TABLES = dict[str, dict[str, list[Any]]]


def change(
    transform: WindowedTransform,
    before: TimelinePosition,
    after: TimelinePosition,
    ends: Sequence[int] = (),
    arrivals: Sequence[tuple[int, int, int]] = (),
    runs: Sequence[tuple[str, str]] = (),
) -> bool:
    """Return whether time can change windows.

    Args:
        ends: the ends of the windows that the state has.
        arrivals: the number, clock and events of arrivals.
        runs: the mode and the table id of runs in the ledger.
    """
    tables = {
        transform.state_table: {"window_end": [*ends, None]},
        transform.source.timeline_table: {
            "arrival": [a for a, _, _ in arrivals],
            "arrived_at": [clock for _, clock, _ in arrivals],
            "rows": [rows for _, _, rows in arrivals],
        },
        "runs": {"mode": [m for m, _ in runs], "table_id": [t for _, t in runs]},
    }

    def read(table: str, bounds: Sequence[Condition], columns: Sequence[str]) -> pa.Table:
        rows = tables[table]
        types = [
            pa.string() if table == "runs" else INSTANT if name in INSTANTS else pa.int64()
            for name in rows
        ]
        arrays = [
            pa.array(v, pa.int64() if t == INSTANT else t).cast(t)
            for v, t in zip(rows.values(), types, strict=True)
        ]
        found = pa.table(dict(zip(rows, arrays, strict=True)))
        for bound in bounds:
            found = found.filter(bound.to_expression())
        return found.select(list(columns))

    return can_change(read, transform, "own", before, after)


def of(watermark: int | None, clock: int = 0, arrival: int = 0) -> TimelinePosition:
    return TimelinePosition(arrival, watermark, clock)


TIMES = st.integers(0, 40)
few = settings(max_examples=300, deadline=None, derandomize=True, database=None)


@few
@given(
    before=st.one_of(st.none(), TIMES),
    move=TIMES,
    lateness=st.integers(0, 12),
    ends=st.lists(TIMES, max_size=4),
    session=st.booleans(),
)
def test_a_run_is_needed_if_a_window_closes_or_becomes_final(
    before: int | None, move: int, lateness: int, ends: list[int], session: bool
) -> None:
    window = Session("5 seconds") if session else Tumbling("5 seconds")
    transform = replace(PER_MINUTE, window=window, allowed_lateness=lateness * SECOND)
    low, high = -INFINITY if before is None else before, (before or 0) + move
    moments = [end + late for end in ends for late in (0, lateness)]
    expected = any(low < moment <= high for moment in moments)
    then = of(None if before is None else before * SECOND)
    found = change(transform, then, of(high * SECOND), [end * SECOND for end in ends])
    assert found is expected


@few
@given(
    interval=st.integers(1, 7),
    clocks=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=9),
    cut=st.integers(0, 8),
    early=st.booleans(),
)
def test_a_run_is_needed_if_the_clock_reaches_an_instant_for_which_events_wait(
    interval: int, clocks: list[tuple[int, int]], cut: int, early: bool
) -> None:
    every = Every(f"{interval} seconds")
    trigger = Trigger(early=every) if early else Trigger(late=every)
    transform = replace(PER_MINUTE, trigger=trigger)
    clock, arrivals = 0, list[tuple[int, int, int]]()
    cut = min(cut, len(clocks) - 1)
    for number, (step, rows) in enumerate(clocks):
        clock += step
        # After the cut, all arrivals are without events.
        arrivals.append((number, clock * SECOND, rows if number <= cut else 0))
    now, end = arrivals[cut][1] // SECOND, clock
    due = [came // SECOND // interval * interval + interval for _, came, rows in arrivals if rows]
    expected = any(now < tick <= end for tick in due)
    then = of(0, now * SECOND, cut)
    assert change(transform, then, of(0, end * SECOND, len(arrivals)), (), arrivals) is expected


def test_the_end_of_the_source_always_needs_a_run() -> None:
    assert change(PER_MINUTE, of(5), of(INFINITY))


def test_the_lateness_does_not_reach_back_beyond_the_first_instant() -> None:
    transform = replace(PER_MINUTE, allowed_lateness=INFINITY)
    ranges = find_passed_ends(transform, of(None), of(5))
    assert ranges == ((BEGINNING, 6),)
    assert find_passed_ends(transform, of(5), of(5)) is None
    assert find_passed_ends(transform, of(None), of(None)) is None


ROLLED_UP = [("incremental", "own"), ("rollup", "own+theirs")]


@pytest.mark.parametrize("window", [Tumbling("1 hour"), Calendar("day", "Europe/Paris")], ids=str)
def test_a_base_runs_for_its_roll_ups_if_one_of_its_windows_could_close(
    window: Tumbling | Calendar,
) -> None:
    transform = replace(PER_MINUTE, window=window, allowed_lateness=0)
    midnight = 23 * HOUR  # in Paris
    for before, after, passes in (
        (midnight - 2, midnight - 1, False),
        (midnight - 1, midnight, True),
        (midnight, midnight + 1, False),
        (None, midnight, True),
    ):
        assert change(transform, of(before), of(after), runs=ROLLED_UP) is passes
    assert not change(transform, of(midnight - 1), of(midnight), runs=ROLLED_UP[:1])
    others = [("rollup", "other+theirs"), ("rollup", "own2+theirs")]
    assert not change(transform, of(midnight - 1), of(midnight), runs=others)
