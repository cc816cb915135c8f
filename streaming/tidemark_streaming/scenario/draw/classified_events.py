"""Classify the events of a scenario's transform in plain Python, for the scenario's picture.

Drawing a scenario needs no engine: this module computes the windows and lateness of each event. The
results themselves are not computed here; they come from a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Calendar, Cumulating, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.draw.event_logs import Step, event_time
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import to_plain

ON_TIME = "on time"
LATE = "late"
TOO_LATE = "too late"
SOME_LATE = "late for some"
NO_TIME = "none"
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
    def overall_lateness(self) -> str:
        """The lateness if it is the same in all windows; otherwise "late for some".

        A duplicate is "duplicate", and an event without windows is "none".
        """
        if self.duplicate:
            return DUPLICATE
        lateness = set(self.windows.values())
        if not lateness:
            return NO_TIME
        if len(lateness) > 1:
            return SOME_LATE
        return lateness.pop()


def classify_events(scenario: Scenario, arrivals: Sequence[Step]) -> list[ClassifiedEvent]:
    """Return the events of the transform's source in the order of their arrival."""
    columns = list(scenario.source.columns)
    types = list(scenario.source.columns.values())
    known_keys = () if scenario.prepares_rows else scenario.transform.keys
    key_indexes = [columns.index(key) for key in known_keys]
    classified: list[ClassifiedEvent] = []
    seen: dict[tuple[Any, ...], list[int]] = {}
    for step in arrivals:
        for row in step.arrival.rows:
            time = event_time(scenario.source, step.arrival, row)
            is_duplicate = time is not None and _is_duplicate(scenario, row, time, seen)
            windows = dict[Span, str]()
            if time is not None and not is_duplicate:
                windows = _classify_lateness(scenario.transform, time, step.before)
            key = tuple(to_plain(row[index], types[index]) for index in key_indexes)
            classified.append(ClassifiedEvent(step, row, time, key, windows, is_duplicate))
    return classified


def _classify_lateness(
    transform: WindowedTransform, time: int, watermark: int | None
) -> dict[Span, str]:
    """Return the windows of an event at an instant, with its lateness in each."""
    lateness_by_window = dict[Span, str]()
    for start, end in find_windows(transform.window, time):
        if start < BEGINNING or end > INFINITY:
            continue
        if watermark is None or watermark < end:
            lateness = ON_TIME
        elif watermark < end + transform.allowed_lateness:
            lateness = LATE
        else:
            lateness = TOO_LATE
        lateness_by_window[start, end] = lateness
    return lateness_by_window


def _is_duplicate(
    scenario: Scenario, row: tuple[Any, ...], time: int, seen: dict[tuple[Any, ...], list[int]]
) -> bool:
    """Return whether an event is a duplicate of an earlier event, and add its time to `seen`."""
    unique = scenario.transform.deduplicate
    if unique is None:
        return False
    columns = list(scenario.source.columns)
    key = tuple(row[columns.index(column)] for column in unique.by)
    if None in key:
        return False
    times = seen.setdefault(key, [])
    is_duplicate = any(abs(time - earlier) <= unique.within for earlier in times)
    times.append(time)
    return is_duplicate


def find_windows(window: Window, time: int) -> list[Span]:
    """Return the windows of an event at an instant; for sessions, the event's own proto-session."""
    match window:
        case Session(gap=gap):
            return [(time, time + gap)]
        case Tumbling(size=size, offset=offset):
            start = time - (time - offset) % size
            return [(start, start + size)]
        case Sliding(size=size, slide=slide, offset=offset):
            last = time - (time - offset) % slide
            return [(start, start + size) for start in range(last, time - size, -slide)][::-1]
        case Cumulating(size=size, step=step, offset=offset):
            start = time - (time - offset) % size
            ends = range(start + step, start + size + 1, step)
            return [(start, end) for end in ends if time < end]
        case Calendar():
            return [window.window_around(time)]
        case _:
            return [(BEGINNING, INFINITY)]
