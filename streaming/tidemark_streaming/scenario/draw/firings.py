"""Determine the arrival at which each pane fired, as far as the scenario determines it.

A result has a window's panes in order, but not the arrivals at which they fired. Those arrivals
follow from the watermark, the clock and the window's events, except for the panes of a session that
a count or an interval fires.
"""

from collections.abc import Iterable, Sequence

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
    in_time = [e.step for e in events if e.windows.get(span) == classified_events.ON_TIME]
    later = [e.step for e in events if e.windows.get(span) == classified_events.LATE]
    early, _ = _find_event_firings(trigger.early, in_time, steps, end)
    if trigger.early.by_arrival:
        early = [n for n in early if not _has_reached(steps[n].after, end)]
    late, left = _find_event_firings(trigger.late, later, steps, final)
    return {
        EARLY: early,
        ON_TIME: _find_first_reached(steps, end) if in_time else [],
        LATE: late + (_find_first_reached(steps, final) if left else []),
    }


def _find_event_firings(
    firing: Firing, came: Sequence[Step], steps: Sequence[Step], end: int
) -> tuple[list[int], bool]:
    """Return the arrivals at which some events cause firings, and whether an event causes none.

    Args:
        firing: the rule by which events cause firings, such as a count.
        came: the arrival of each event.
        steps: all arrivals.
        until: an instant of event time. No interval fires once the watermark has reached it.
    """
    match firing:
        case EachArrival():
            return _in_order(s.number for s in came), False
        case Count(n):
            return [s.number for s in came[n - 1 :: n]], len(came) % n > 0
        case Every(interval=interval):
            ticks = [_find_tick_step(interval, s, steps) for s in came]
            open_then = [s for s in ticks if s is not None and not _has_reached(s.before, end)]
            return _in_order(s.number for s in open_then), len(open_then) < len(ticks)
        case _:
            return [], bool(came)


def _find_tick_step(interval: int, came: Step, steps: Sequence[Step]) -> Step | None:
    """Return the first step whose clock reaches the next multiple of the interval after the clock
    of `came`; None if there is none."""
    tick = came.arrival.clock // interval * interval + interval
    return next((s for s in steps if s.arrival.clock >= tick), None)


def _find_session_firings(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[ClassifiedEvent], span: Span
) -> Firings:
    trigger = scenario.transform.trigger
    start, end = span
    inside = [
        (window, e.step)
        for e in events
        for window, verdict in e.windows.items()
        if start <= window[0] and window[1] <= end and verdict != classified_events.TOO_LATE
    ]
    # Until the events at both ends have arrived, the session has other bounds.
    first = min((s.number for window, s in inside if window[0] == start), default=0)
    last = min((s.number for window, s in inside if window[1] == end), default=0)
    since = max(first, last)
    came = [s for s in steps if s.number in {s.number for _, s in inside} and s.number >= since]
    firings: Firings = {ON_TIME: [max(n, since) for n in _find_first_reached(steps, end)]}
    if trigger.early.by_arrival:
        firings[EARLY] = [s.number for s in came if not _has_reached(s.after, end)]
    if trigger.late.by_arrival:
        firings[LATE] = [s.number for s in came if _has_reached(s.before, end)]
    return firings


def _find_first_reached(steps: Sequence[Step], watermark: int) -> list[int]:
    return [s.number for s in steps if _has_reached(s.after, watermark)][:1]


def _has_reached(watermark: int | None, instant: int) -> bool:
    return watermark is not None and watermark >= instant


def _in_order(numbers: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(numbers))
