"""Classify the events of a scenario's transform in plain Python, for the scenario's picture.

Drawing a scenario needs no engine: this module computes the windows and lateness of each event. The
results themselves are not computed here; they come from a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.windows import Calendar, Cumulating, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.draw.event_logs import Step, event_time
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import to_plain

ON_TIME, LATE, TOO_LATE, SOME_LATE, NO_TIME = "on time", "late", "too late", "late for some", "none"
DUPLICATE = "duplicate"
Span = tuple[int, int]


@dataclass(frozen=True)
class ClassifiedEvent:
    """An event of the arrival `step`, with its key and its lateness in each of its windows.

    A duplicate has no windows. The key of an imported asset's event is empty, because the asset's
    function computes it during a run.
    """

    step: Step
    row: tuple[Any, ...]
    time: int | None
    key: tuple[Any, ...]
    windows: dict[Span, str]
    duplicate: bool = False

    @property
    def verdict(self) -> str:
        """The lateness if it is the same in all windows; otherwise "late for some".

        A duplicate is "duplicate", and an event without windows is "none".
        """
        if self.duplicate:
            return DUPLICATE
        found = set(self.windows.values())
        return found.pop() if len(found) == 1 else SOME_LATE if found else NO_TIME


def classify(scenario: Scenario, arrivals: Sequence[Step]) -> list[ClassifiedEvent]:
    """Return the events of the transform's source in the order of their arrival."""
    columns = list(scenario.source.columns.items())
    known_keys = () if scenario.prepares else scenario.transform.keys
    keys = [next(i for i, (c, _) in enumerate(columns) if c == k) for k in known_keys]
    found: list[ClassifiedEvent] = []
    seen: dict[tuple[Any, ...], list[int]] = {}
    for step in arrivals:
        for row in step.arrival.rows:
            at = event_time(scenario.source, step.arrival, row)
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
    """Return whether an event is a duplicate of an earlier event, and add its time to `seen`."""
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
    """Return the windows of an event at an instant; for sessions, the event's own proto-session."""
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


def _verdict(end: int, watermark: int | None, lateness: int) -> str:
    if watermark is None or watermark < end:
        return ON_TIME
    return LATE if watermark < end + lateness else TOO_LATE
