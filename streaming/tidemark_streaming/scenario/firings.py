"""With which arrival a pane fired, as far as the scenario tells.

A result has a window's panes in their order, and not when they fired. That follows from the
watermark, the clock and the events of the window; where it does not, for a session that a count or
an interval fires, the answer is None.
"""

from collections.abc import Iterable, Sequence

from tidemark.define.trigger import EARLY, LATE, ON_TIME, Count, EachArrival, Every, Firing
from tidemark_streaming.scenario import judged
from tidemark_streaming.scenario.judged import Judged, Span, Step
from tidemark_streaming.scenario.parse import Scenario

Firings = dict[str, list[int]]
"""For each timing the numbers of the arrivals with which a window fired so, in their order."""


def firings(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[Judged], span: Span
) -> Firings:
    """When the window of some events of one key fired."""
    if scenario.transform.window.merges:
        return _session(scenario, steps, events, span)
    end, trigger = span[1], scenario.transform.trigger
    final = end + scenario.transform.allowed_lateness
    in_time = [e.step for e in events if e.windows.get(span) == judged.ON_TIME]
    later = [e.step for e in events if e.windows.get(span) == judged.LATE]
    early, _ = _fired(trigger.early, in_time, steps, end)
    if trigger.early.by_arrival:
        early = [n for n in early if not _reached(steps[n].after, end)]
    late, left = _fired(trigger.late, later, steps, final)
    return {
        EARLY: early,
        ON_TIME: _first(steps, end) if in_time else [],
        LATE: late + (_first(steps, final) if left else []),
    }


def _fired(
    firing: Firing, came: Sequence[Step], steps: Sequence[Step], until: int
) -> tuple[list[int], bool]:
    """The arrivals that fire events which came with these steps, and whether some are left.

    Args:
        until: no interval fires any more once the watermark has reached it.
    """
    match firing:
        case EachArrival():
            return _in_order(s.number for s in came), False
        case Count(n):
            return [s.number for s in came[n - 1 :: n]], len(came) % n > 0
        case Every(interval=interval):
            at = [_tick(interval, s, steps) for s in came]
            open_then = [s for s in at if s is not None and not _reached(s.before, until)]
            return _in_order(s.number for s in open_then), len(open_then) < len(at)
        case _:
            return [], bool(came)


def _tick(interval: int, came: Step, steps: Sequence[Step]) -> Step | None:
    """The first step whose clock has reached the first multiple after that of another."""
    tick = came.arrival.clock // interval * interval + interval
    return next((s for s in steps if s.arrival.clock >= tick), None)


def _session(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[Judged], span: Span
) -> Firings:
    trigger = scenario.transform.trigger
    start, end = span
    inside = [
        (own, e.step)
        for e in events
        for own, verdict in e.windows.items()
        if start <= own[0] and own[1] <= end and verdict != judged.TOO_LATE
    ]
    # Before the events at both of its ends have come, it was another session.
    first = min((s.number for own, s in inside if own[0] == start), default=0)
    last = min((s.number for own, s in inside if own[1] == end), default=0)
    since = max(first, last)
    came = [s for s in steps if s.number in {s.number for _, s in inside} and s.number >= since]
    found: Firings = {ON_TIME: [max(n, since) for n in _first(steps, end)]}
    if trigger.early.by_arrival:
        found[EARLY] = [s.number for s in came if not _reached(s.after, end)]
    if trigger.late.by_arrival:
        found[LATE] = [s.number for s in came if _reached(s.before, end)]
    return found


def _first(steps: Sequence[Step], watermark: int) -> list[int]:
    return [s.number for s in steps if _reached(s.after, watermark)][:1]


def _reached(watermark: int | None, at: int) -> bool:
    return watermark is not None and watermark >= at


def _in_order(numbers: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(numbers))
