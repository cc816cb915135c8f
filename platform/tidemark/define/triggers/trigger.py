"""Triggers: when a window's result is published.

A window fires EARLY while it is open, if its trigger has early firings. It fires ON_TIME once, at
the first arrival whose watermark passes its end, if it had any on-time event. It fires LATE when
late events arrive that still count. It is final when the watermark has passed its end by the
allowed lateness: no late event can change it after that. Only a session can still grow, by an event
that is on time and within a gap of the session's end.

| firing | EARLY | LATE |
| --- | --- | --- |
| `Every(interval)` | at multiples of the interval on the processing clock | the same |
| `Count(n)` | after every n events, in the order (arrival, position) | the same |
| `EachArrival()` | after each arrival that brings events | the same |

On-time events that were in no early firing join the ON_TIME firing. Late events that were in no
late firing fire when the window becomes final. The arrival that moves the watermark past a window's
end fires the window ON_TIME, not EARLY. If the clock reaches a multiple of an interval with the
same arrival, earlier events that wait for this multiple still fire EARLY.

`firings` defines which events fire together. The arrival at which a window fires depends only on
the event log and the timeline, not on the runs.
"""

from dataclasses import dataclass

from tidemark.base.arguments import checked_class
from tidemark.define.triggers.firings import Count, EachArrival, Every, Firing, Never

__all__ = [
    "EARLY",
    "LATE",
    "ON_TIME",
    "Count",
    "EachArrival",
    "Every",
    "Firing",
    "Never",
    "Trigger",
]

EARLY = "EARLY"
ON_TIME = "ON_TIME"
LATE = "LATE"


@checked_class
@dataclass(frozen=True, init=False)
class Trigger:
    """The firings of a window in addition to its ON_TIME firing.

    On-time events that were in no early firing join the ON_TIME firing. Late events that were in no
    late firing fire when the window becomes final.

    Example:
        Trigger(early=Every("1 minute"), late=Count(100))

    Args:
        early: firings before the watermark passes the window's end; none by default.
        late: firings after the watermark has passed the window's end; by default, at each arrival
            with late events.
    """

    early: Firing
    late: Firing

    def __init__(self, early: Firing | None = None, late: Firing | None = None) -> None:
        object.__setattr__(self, "early", early or Never())
        object.__setattr__(self, "late", late or EachArrival())

    def __str__(self) -> str:
        description = f"on time, late {self.late}"
        if self.fires_early:
            return f"early {self.early}, {description}"
        return description

    @property
    def fires_early(self) -> bool:
        """True if a window may fire before its end."""
        return self.early != Never()

    @property
    def needs_rank(self) -> bool:
        """True if an event's early or late slot depends on the number of events before it."""
        return self.early.needs_rank or self.late.needs_rank
