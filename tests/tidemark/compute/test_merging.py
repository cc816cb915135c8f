"""Tests of merging and firing sessions: the replay of fragments compared with the oracle."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from helpers.model.oracle import simulate
from helpers.model.random_scenarios import ABSENT, SESSIONS, scenarios
from tidemark.base.instants import INFINITY, format_instant
from tidemark.compute.lifecycle.session_replay import Fragment, Replay
from tidemark.compute.slot import EARLY, FINAL, LATE, ON_TIME
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Trigger
from tidemark.define.watermarks import after_heartbeat
from tidemark.define.windows import Session
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario

Key = tuple[Any, ...]
TIMING = {EARLY: "EARLY", ON_TIME: "ON_TIME", LATE: "LATE", FINAL: "LATE"}


@dataclass(frozen=True)
class Step:
    """Arrival of a scenario, with the watermarks before and after it."""

    number: int
    clock: int
    rows: tuple[tuple[Any, ...], ...]
    before: int | None
    reached: int | None


def steps(scenario: Scenario) -> list[Step]:
    source, watermark, found = scenario.source, None, list[Step]()
    at = list(source.columns).index(source.event_time)
    for number, arrival in enumerate(scenario.arrivals):
        times = [row[at] for row in arrival.rows if row[at] is not None]
        seen = str(max(times)) if times else None
        before = watermark
        watermark, _ = source.watermark.advance(
            None, before, seen, arrival.clock, arrival.watermark
        )
        if arrival.silent_since is not None:
            watermark = after_heartbeat(
                source.watermark, watermark, arrival.clock, arrival.silent_since
            )
        watermark = INFINITY if arrival.ends else watermark
        found.append(Step(number, arrival.clock, arrival.rows, before, watermark))
    return found


def tick(step: Step, every: object, later: list[Step]) -> tuple[int | None, int | None]:
    """Return the first arrival after the next clock tick, and the watermark before it."""
    if not isinstance(every, Every):
        return None, None
    due = step.clock - step.clock % every.interval + every.interval
    reached = next((s for s in later if s.clock >= due), None)
    return (None, None) if reached is None else (reached.number, reached.before)


def fragments(scenario: Scenario) -> dict[Key, list[tuple[Fragment, int]]]:
    """Return the counted events of each key as fragments, each with its number of events."""
    transform, source = scenario.transform, scenario.source
    assert isinstance(transform.window, Session)
    names, gap, trigger = list(source.columns), transform.window.gap, transform.trigger
    walked = steps(scenario)
    counts = isinstance(trigger.early, Count) or isinstance(trigger.late, Count)
    found: dict[Key, dict[tuple[int, ...], tuple[Fragment, int]]] = {}
    for step in walked:
        for position, row in enumerate(step.rows):
            at = row[names.index(source.event_time)]
            gone = -INFINITY if step.before is None else step.before - transform.allowed_lateness
            if at is None or at + gap <= gone:
                continue
            later = walked[step.number + 1 :]
            fragment = Fragment(
                *(at, at + gap, step.number, position, step.before, step.reached),
                *tick(step, trigger.early, later),
                *tick(step, trigger.late, later),
            )
            of_key = found.setdefault(tuple(row[names.index(k)] for k in transform.keys), {})
            place = (step.number, at, position if counts else 0)
            first, events = of_key.get(place, (fragment, 0))
            of_key[place] = first, events + 1
    return {key: list(of_key.values()) for key, of_key in found.items()}


@pytest.mark.slow
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(scenarios(windows=SESSIONS, uniques=ABSENT))
def test_replayed_fragments_fire_like_single_events(told: dict[str, Any]) -> None:
    told["transform"]["accumulation"] = "accumulating"
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(told, file)
        file.flush()
        scenario = load_scenario(Path(file.name))
    transform, end = scenario.transform, steps(scenario)[-1:]
    found: Counter[tuple[Any, ...]] = Counter()
    standing: Counter[tuple[Any, ...]] = Counter()
    for key, parts in fragments(scenario).items():
        replay = Replay([f for f, _ in parts], transform.trigger, transform.allowed_lateness)
        for firing in replay.replay_through(end[0].number, end[0].reached):
            events = sum(parts[i][1] for i in firing.members)
            row = (key, format_instant(firing.start), format_instant(firing.end), events)
            found[(*row, firing.pane, TIMING[firing.phase])] += 1
            standing[row] += firing in replay.find_live_firings()
    want = simulate(told)

    def rows(part: str, *columns: str) -> Counter[tuple[Any, ...]]:
        names = ("window_start", "window_end", "n", *columns)
        return Counter(
            (tuple(r[k] for k in transform.keys), *(r[n] for n in names)) for r in want[part]
        )

    assert found == rows("panes", "pane", "timing")
    assert +standing == rows("windows")


def fragment(
    arrival: int, start: int, *, before: int | None, at: int | None, seen: int
) -> Fragment:
    """Return a fragment of gap 10 whose next tick occurs at arrival `at` with watermark `seen`."""
    return Fragment(start, start + 10, arrival, 0, before, before, at, seen, at, seen)


def test_a_tick_at_the_end_watermark_fires_nothing_early() -> None:
    #   t:  0        10
    #       x--------|      then W = 10, then the clock passes the tick
    replay = Replay(
        [fragment(0, 0, before=None, at=2, seen=10)], Trigger(early=Every("1 second")), 0
    )
    assert [f.phase for f in replay.replay_through(2, 10)] == [ON_TIME]


def test_waiting_late_events_fire_when_the_window_becomes_final() -> None:
    #   t:  0        10        15
    #       x--------|         |   one on time, W = 12, one late that waits, W = 14, W = 15
    early = fragment(0, 0, before=None, at=None, seen=0)
    late = fragment(1, 0, before=12, at=None, seen=0)
    trigger = Trigger(late=Count(5))
    waiting = Replay([early, late], trigger, 5).replay_through(2, 14)
    assert [f.phase for f in waiting] == [ON_TIME]
    final = Replay([early, late], trigger, 5).replay_through(3, 15)
    assert [(f.phase, f.members, f.fresh) for f in final] == [
        (ON_TIME, (0,), (0,)),
        (FINAL, (0, 1), (1,)),
    ]


def plain(arrival: int, start: int, *, before: int | None, reached: int | None) -> Fragment:
    """Return a fragment of gap 10 for a trigger without a clock."""
    return Fragment(start, start + 10, arrival, 0, before, reached, None, None, None, None)


def test_sessions_exactly_a_gap_apart_merge() -> None:
    replay = Replay([plain(n, 10 * n, before=None, reached=None) for n in range(2)], Trigger(), 0)
    assert [(f.start, f.end) for f in replay.replay_through(1, 20)] == [(0, 20)]


def test_the_arrival_that_closes_a_session_fires_only_on_time() -> None:
    replay = Replay([plain(0, 0, before=None, reached=10)], Trigger(early=EachArrival()), 0)
    assert [f.phase for f in replay.replay_through(0, 10)] == [ON_TIME]


def test_a_merged_session_continues_from_its_parts_highest_pane() -> None:
    #   t:  0    10   20   30
    #       x----|    x----|      the second one comes twice, then what joins both
    starts = (0, 20, 20, 10)
    parts = [plain(n, at, before=None, reached=None) for n, at in enumerate(starts)]
    firings = Replay(parts, Trigger(early=EachArrival()), 0).replay_through(3, None)
    assert [f.pane for f in firings] == [0, 0, 1, 2]


def test_an_event_for_a_closed_session_fires_late() -> None:
    parts = [plain(0, 0, before=None, reached=12), plain(1, 0, before=12, reached=12)]
    assert [f.phase for f in Replay(parts, Trigger(), 5).replay_through(1, 12)] == [ON_TIME, LATE]


def test_a_session_closes_when_the_watermark_reaches_its_end() -> None:
    replay = Replay([plain(0, 0, before=None, reached=10)], Trigger(), 0)
    assert [f.phase for f in replay.replay_through(0, 10)] == [ON_TIME]
