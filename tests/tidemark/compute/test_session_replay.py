"""Tests that the replay of sessions equals the oracle, for histories from Hypothesis."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.model.oracle import simulate
from tidemark.base.instants import INFINITY, as_datetime, format_instant
from tidemark.compute.lifecycle.session_replay import Firing, Fragment, Replay
from tidemark.compute.slot import EARLY, FINAL, LATE, ON_TIME
from tidemark.define.triggers import firings
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Never, Trigger

SECOND = 1_000_000
GAP, BOUND = 10, 5
TIMING = {EARLY: "EARLY", ON_TIME: "ON_TIME", LATE: "LATE", FINAL: "LATE"}
Side = tuple[firings.Firing, dict[str, Any]]
"""A firing of a trigger, and the same as the oracle has it."""

FIRINGS: tuple[Side, ...] = (
    (Never(), {"never": {}}),
    (EachArrival(), {"arrival": {}}),
    (Count(2), {"count": 2}),
    (Every("7 seconds"), {"every": "7 seconds"}),
    (Every("4 seconds"), {"every": "4 seconds"}),
)


class Arrival(NamedTuple):
    """Event times of one key, or a watermark; all numbers are seconds.

    Args:
        wait: the processing time since the arrival before.
        watermark: of an arrival without events.
    """

    wait: int
    events: list[int]
    watermark: int


class Moment(NamedTuple):
    """An arrival as the timeline has it: its clock, and the watermarks before and after it."""

    clock: int
    before: int | None
    after: int | None


SECONDS = st.integers(0, 60)
ARRIVALS = st.builds(Arrival, st.integers(0, 9), st.lists(SECONDS, max_size=3), SECONDS)
HISTORIES = st.lists(ARRIVALS, min_size=1, max_size=12)


def timeline(history: list[Arrival]) -> Iterator[Moment]:
    clock, newest, watermark = 0, 0, None
    for arrival in history:
        clock, before = clock + arrival.wait, watermark
        newest = max([newest, *arrival.events])
        reached = newest - BOUND if arrival.events else arrival.watermark
        watermark = reached if before is None else max(before, reached)
        yield Moment(clock, before, watermark)


def micros(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND


def due(moments: list[Moment], clock: int, interval: int | None) -> tuple[int | None, int | None]:
    """Return the first arrival at or after the next tick, and the watermark before it."""
    if interval is None:
        return None, None
    seconds = interval // SECOND
    tick = (clock // seconds + 1) * seconds
    reached = next((n for n, moment in enumerate(moments) if moment.clock >= tick), None)
    return reached, None if reached is None else micros(moments[reached].before)


def fragments(
    history: list[Arrival], trigger: Trigger, lateness: int
) -> Iterator[tuple[int, Fragment]]:
    """Yield the number of each event that counts, and its fragment."""
    moments, number = list(timeline(history)), 0
    for n, (arrival, moment) in enumerate(zip(history, moments, strict=True)):
        sides = [
            due(moments, moment.clock, side.clock_interval)
            for side in (trigger.early, trigger.late)
        ]
        facts = (micros(moment.before), micros(moment.after), *sides[0], *sides[1])
        for position, at in enumerate(arrival.events):
            if moment.before is None or moment.before < at + GAP + lateness:
                yield number, Fragment(at * SECOND, (at + GAP) * SECOND, n, position, *facts)
            number += 1


def expected(
    history: list[Arrival], early: Side, late: Side, lateness: int, ends: bool
) -> dict[str, Any]:
    numbers = iter(range(1_000))
    items: list[dict[str, Any]] = []
    for arrival in history:
        items.append({"clock": f"{arrival.wait} seconds"})
        rows = [{"t": as_datetime(at * SECOND), "id": next(numbers)} for at in arrival.events]
        items.append(
            {"rows": rows} if rows else {"watermark": as_datetime(arrival.watermark * SECOND)}
        )
    return simulate(
        {
            "name": "replay",
            "source": {
                "event_time": "t",
                "columns": {"t": "timestamp", "id": "int"},
                "watermark": {"bounded_out_of_orderness": f"{BOUND} seconds"},
            },
            "transform": {
                "window": {"session": {"gap": f"{GAP} seconds"}},
                "allowed_lateness": f"{lateness} seconds",
                "trigger": {"early": early[1], "late": late[1]},
                "accumulation": "discarding",
                "aggregates": {"ids": {"collect": "id"}},
            },
            "arrivals": items,
            "open": not ends,
        }
    )


@settings(max_examples=200)
@given(
    HISTORIES,
    st.sampled_from(FIRINGS),
    st.sampled_from(FIRINGS),
    st.integers(0, 30),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_replayed_firings_equal_the_oracles(
    history: list[Arrival], early: Side, late: Side, lateness: int, ends: bool, chance: Random
) -> None:
    trigger = Trigger(early[0], late[0])
    numbered = list(fragments(history, trigger, lateness))
    chance.shuffle(numbered)
    replay = Replay([f for _, f in numbered], trigger, lateness * SECOND)
    last = list(timeline(history))[-1].after
    fired = replay.replay_through(len(history), INFINITY if ends else micros(last))

    def told(firing: Firing, members: tuple[int, ...]) -> tuple[Any, ...]:
        ids = sorted(numbered[i][0] for i in members)
        timing = TIMING[firing.phase]
        return (
            format_instant(firing.start),
            format_instant(firing.end),
            firing.pane,
            timing,
            str(ids),
        )

    def row(found: dict[str, Any], pane: str) -> tuple[Any, ...]:
        start, end, timing = found["window_start"], found["window_end"], found["timing"]
        return start, end, found[pane], timing, str(found["ids"])

    result = expected(history, early, late, lateness, ends)
    assert Counter(told(f, f.fresh) for f in fired) == Counter(
        row(pane, "pane") for pane in result["panes"]
    )
    assert Counter(told(f, f.members) for f in replay.find_live_firings()) == Counter(
        row(window, "revision") for window in result["windows"]
    )


# The window becomes final before the clock reaches the next tick.
@example(
    [*map(Arrival, (0, 0, 0, 0, 9), ([0], [], [1], [], []), (0, 12, 0, 60, 60))],
    FIRINGS[0],
    FIRINGS[-1],
    30,
)
@given(HISTORIES, st.sampled_from(FIRINGS), st.sampled_from(FIRINGS), st.integers(0, 30))
def test_an_arrival_adds_the_firings_that_it_caused(
    history: list[Arrival], early: Side, late: Side, lateness: int
) -> None:
    trigger = Trigger(early[0], late[0])
    known = [f for _, f in fragments(history, trigger, lateness)]
    before: Counter[tuple[Any, ...]] = Counter()
    for number, moment in enumerate(timeline(history)):
        replay = Replay([f for f in known if f.arrival <= number], trigger, lateness * SECOND)
        fired = replay.replay_through(number, micros(moment.after))
        now = Counter((f.start, f.end, f.pane, f.phase, f.fired, f.members) for f in fired)
        assert before <= now
        for _, _, _, phase, at, _ in now - before:
            assert at == (number if phase in (EARLY, LATE) else None)
        before = now
