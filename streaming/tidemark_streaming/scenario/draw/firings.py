"""Determine the arrival at which each pane fired, as far as the scenario determines it.

A result has a window's panes in order, but not the arrivals at which they fired. Those arrivals
follow from the watermark, the clock and the window's events, except for the panes of a session that
a count or an interval fires.
"""

from collections.abc import Sequence

from tidemark.define.triggers.trigger import EARLY, LATE, ON_TIME, Count, EachArrival, Every, Firing
from tidemark_streaming.scenario.draw import classified_events
from tidemark_streaming.scenario.draw.classified_events import ClassifiedEvent, Span
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.read.parse import Scenario

Firings = dict[str, list[int]]
"""For each timing, the numbers of the arrivals at which a window fired with it, in order."""


def find_firings(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[ClassifiedEvent], span: Span
) -> Firings:
    """Return the arrivals at which a window fired. `events` must be those of the window's key."""
    if scenario.transform.window.merges:
        return _find_session_firings(scenario, steps, events, span)
    end = span[1]
    trigger = scenario.transform.trigger
    final = end + scenario.transform.allowed_lateness
    in_time = _list_steps_of(events, span, classified_events.ON_TIME)
    late_steps = _list_steps_of(events, span, classified_events.LATE)
    early_firings, _ = _find_event_firings(trigger.early, in_time, steps, end)
    if trigger.early.by_arrival:
        early_firings = [n for n in early_firings if not _has_reached(steps[n].after, end)]
    on_time_firings = _find_first_reached(steps, end) if in_time else []
    late_firings, is_one_left = _find_event_firings(trigger.late, late_steps, steps, final)
    if is_one_left:
        # The window fires once more before its state is deleted.
        late_firings = late_firings + _find_first_reached(steps, final)
    return {EARLY: early_firings, ON_TIME: on_time_firings, LATE: late_firings}


def _list_steps_of(events: Sequence[ClassifiedEvent], span: Span, lateness: str) -> list[Step]:
    """Return the arrival of each event that has this lateness in a window."""
    return [event.step for event in events if event.windows.get(span) == lateness]


def _find_event_firings(
    firing: Firing, came: Sequence[Step], steps: Sequence[Step], end: int
) -> tuple[list[int], bool]:
    """Return the arrivals at which some events cause firings, and whether an event causes none.

    Args:
        firing: the rule by which events cause firings, such as a count.
        came: the arrival of each event.
        steps: all arrivals.
        end: an instant of event time. No interval fires once the watermark has reached it.
    """
    match firing:
        case EachArrival():
            return _without_repetition([step.number for step in came]), False
        case Count(n):
            counted = came[n - 1 :: n]
            return [step.number for step in counted], len(came) % n > 0
        case Every(interval=interval):
            fired = list[int]()
            is_one_left = False
            for step in came:
                tick_step = _find_tick_step(interval, step, steps)
                if tick_step is None or _has_reached(tick_step.before, end):
                    is_one_left = True
                else:
                    fired.append(tick_step.number)
            return _without_repetition(fired), is_one_left
        case _:
            return [], bool(came)


def _find_tick_step(interval: int, came: Step, steps: Sequence[Step]) -> Step | None:
    """Return the first step whose clock reaches the next multiple of the interval after the clock
    of `came`; None if there is none."""
    tick = came.arrival.clock // interval * interval + interval
    for step in steps:
        if step.arrival.clock >= tick:
            return step
    return None


def _find_session_firings(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[ClassifiedEvent], span: Span
) -> Firings:
    trigger = scenario.transform.trigger
    start, end = span
    inside = list[tuple[Span, Step]]()
    for event in events:
        for window, lateness in event.windows.items():
            is_inside = start <= window[0] and window[1] <= end
            if is_inside and lateness != classified_events.TOO_LATE:
                inside.append((window, event.step))
    # Until the events at both ends have arrived, the session has other bounds.
    first_step = min((step.number for window, step in inside if window[0] == start), default=0)
    last_step = min((step.number for window, step in inside if window[1] == end), default=0)
    complete_since = max(first_step, last_step)
    arrived = {step.number for _, step in inside}
    on_time = [max(number, complete_since) for number in _find_first_reached(steps, end)]
    early = list[int]()
    late = list[int]()
    for step in steps:
        if step.number in arrived and step.number >= complete_since:
            if not _has_reached(step.after, end):
                early.append(step.number)
            if _has_reached(step.before, end):
                late.append(step.number)
    firings: Firings = {ON_TIME: on_time}
    if trigger.early.by_arrival:
        firings[EARLY] = early
    if trigger.late.by_arrival:
        firings[LATE] = late
    return firings


def _find_first_reached(steps: Sequence[Step], watermark: int) -> list[int]:
    for step in steps:
        if _has_reached(step.after, watermark):
            return [step.number]
    return []


def _has_reached(watermark: int | None, instant: int) -> bool:
    return watermark is not None and watermark >= instant


def _without_repetition(numbers: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(numbers))
