"""Classify a scenario's events in plain Python, for its picture.

Drawing a scenario needs no engine: this module computes the watermark at each arrival, and the
windows and lateness of each event. The results themselves are not computed here; they come from a
run.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import (
    BEGINNING,
    EARLIEST,
    INFINITY,
    LATEST,
    duration,
)
from tidemark.define import watermarks
from tidemark.define.watermarks import Punctuated, after_heartbeat
from tidemark.define.windows import Calendar, Cumulating, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.read.parse import Scenario, ScenarioArrival
from tidemark_streaming.scenario.read.values import to_plain

ON_TIME, LATE, TOO_LATE, SOME_LATE, NO_TIME = "on time", "late", "too late", "late for some", "none"
DUPLICATE = "duplicate"
Span = tuple[int, int]
_WITHOUT_ENGINE = (
    *(watermarks.BoundedOutOfOrderness, watermarks.MonotonicTimestamps, watermarks.PerPartition),
    *(watermarks.Perfect, watermarks.Manual),
)
"""The watermark strategies that depend only on event times, or on no rows at all."""


@dataclass(frozen=True)
class Step:
    """An arrival, and the watermark before and after it; None is minus infinity."""

    number: int
    arrival: ScenarioArrival
    before: int | None
    after: int | None


@dataclass(frozen=True)
class ClassifiedEvent:
    """An event of a step, with its key and its lateness in each of its windows.

    A duplicate has no windows. The key is empty if an asset's function is yet to compute it.
    """

    step: Step
    row: tuple[Any, ...]
    time: int | None
    key: tuple[Any, ...]
    windows: dict[Span, str]
    duplicate: bool = False

    @property
    def verdict(self) -> str:
        """The lateness if it is the same in all windows; otherwise "late for some"."""
        if self.duplicate:
            return DUPLICATE
        found = set(self.windows.values())
        return found.pop() if len(found) == 1 else SOME_LATE if found else NO_TIME


def steps(scenario: Scenario) -> list[Step]:
    """Return the arrivals with their watermarks. These stay at minus infinity unless
    `is_known_watermark`.
    """
    found: list[Step] = []
    watermark, state = None, None
    for number, arrival in enumerate(scenario.arrivals):
        before = watermark
        if arrival.ends:
            watermark = INFINITY
        else:
            observed = _observe(scenario, arrival) if is_known_watermark(scenario) else None
            watermark, state = scenario.source.watermark.advance(
                state, before, observed, arrival.clock, arrival.watermark
            )
            if arrival.silent_since is not None:
                watermark = after_heartbeat(
                    scenario.source.watermark, watermark, arrival.clock, arrival.silent_since
                )
        found.append(Step(number, arrival, before, watermark))
    return found


def is_known_watermark(scenario: Scenario) -> bool:
    """Return whether the watermark can be computed without an engine, which an expression needs."""
    strategy = scenario.source.watermark
    if isinstance(strategy, Punctuated):
        return _plain_column(scenario, strategy) is not None
    return isinstance(strategy, _WITHOUT_ENGINE)


def classify(scenario: Scenario, arrivals: Sequence[Step]) -> list[ClassifiedEvent]:
    """Return the events in the order of their arrival."""
    columns = list(scenario.source.columns.items())
    known_keys = () if scenario.prepares else scenario.transform.keys
    keys = [next(i for i, (c, _) in enumerate(columns) if c == k) for k in known_keys]
    found: list[ClassifiedEvent] = []
    seen: dict[tuple[Any, ...], list[int]] = {}
    for step in arrivals:
        for row in step.arrival.rows:
            at = _event_time(scenario, step.arrival, row)
            again = at is not None and _again(scenario, row, at, seen)
            windows = [] if at is None or again else spans(scenario.transform.window, at)
            windows = [w for w in windows if w[0] >= BEGINNING and w[1] <= INFINITY]
            lateness = scenario.transform.allowed_lateness
            verdicts = {w: _verdict(w[1], step.before, lateness) for w in windows}
            key = tuple(to_plain(row[i], columns[i][1]) for i in keys)
            found.append(ClassifiedEvent(step, row, at, key, verdicts, again))
    return found


def _again(
    scenario: Scenario, row: tuple[Any, ...], at: int, seen: dict[tuple[Any, ...], list[int]]
) -> bool:
    """Return whether an event is a duplicate of an earlier one, and add it to `seen`."""
    unique = scenario.transform.deduplicate
    if unique is None:
        return False
    columns = list(scenario.source.columns)
    key = tuple(row[columns.index(c)] for c in unique.by)
    if None in key:
        return False
    times = seen.setdefault(key, [])
    again = any(abs(at - t) <= unique.within for t in times)
    times.append(at)
    return again


def spans(window: Window, at: int) -> list[Span]:
    """Return the windows of an event at an instant; for sessions, its own proto-session."""
    match window:
        case Session(gap=gap):
            return [(at, at + gap)]
        case Tumbling(size=size, offset=offset):
            start = at - (at - offset) % size
            return [(start, start + size)]
        case Sliding(size=size, slide=slide, offset=offset):
            last = at - (at - offset) % slide
            return [(start, start + size) for start in range(last, at - size, -slide)][::-1]
        case Cumulating(size=size, step=step, offset=offset):
            start = at - (at - offset) % size
            ends = range(start + step, start + size + 1, step)
            return [(start, end) for end in ends if at < end]
        case Calendar():
            return [window.span(at)]
        case _:
            return [(BEGINNING, INFINITY)]


def _observe(scenario: Scenario, arrival: ScenarioArrival) -> str | None:
    """Return the result of the strategy's `observe` for an arrival's rows."""
    columns, strategy = list(scenario.source.columns), scenario.source.watermark
    column = _plain_column(scenario, strategy) if isinstance(strategy, Punctuated) else None

    def event_time(row: tuple[Any, ...]) -> int | None:
        believed = _event_time(scenario, arrival, row)
        return believed if column is None else row[columns.index(column)]

    if strategy.by is None:
        return _newest(map(event_time, arrival.rows))
    by = columns.index(strategy.by)
    parts: dict[str | None, list[int | None]] = {}
    for row in arrival.rows:
        parts.setdefault(None if row[by] is None else str(row[by]), []).append(event_time(row))
    seen = {part: text for part, times in parts.items() if (text := _newest(times)) is not None}
    return json.dumps(list(seen.items()))


def _newest(times: Iterable[int | None]) -> str | None:
    newest = max((t for t in times if t is not None), default=None)
    return None if newest is None else str(newest)


def _plain_column(scenario: Scenario, strategy: Punctuated) -> str | None:
    """Return the timestamp column if the expression is just its name, else None."""
    name = strategy.expression.strip().strip("`")
    return name if scenario.source.columns.get(name, "").lower() == "timestamp" else None


def _event_time(scenario: Scenario, arrival: ScenarioArrival, row: tuple[Any, ...]) -> int | None:
    """Return the event time, or None if the source does not accept it."""
    source = scenario.source
    time = row[list(source.columns).index(source.event_time)]
    if time is None or not EARLIEST <= time < LATEST:
        return None
    if source.max_future_skew is None:
        return time
    return time if time <= arrival.clock + duration(source.max_future_skew) else None


def _verdict(end: int, watermark: int | None, lateness: int) -> str:
    if watermark is None or watermark < end:
        return ON_TIME
    return LATE if watermark < end + lateness else TOO_LATE
