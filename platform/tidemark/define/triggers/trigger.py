"""Triggers: when a window's result is published.

A window fires EARLY while it is open, if its trigger has early firings. It fires ON_TIME once, at
the first arrival whose watermark passes its end, if it had any on-time event. It fires LATE when
late events arrive that still count. It is final when the watermark has passed its end by the
allowed lateness: no late event can change it after that. An event that is on time, within a gap of
its end, can still extend a session.

| firing | EARLY | LATE |
| --- | --- | --- |
| `Every(interval)` | at multiples of the interval on the processing clock | the same |
| `Count(n)` | after every n events, in the order (arrival, position) | the same |
| `EachArrival()` | after each arrival that brings events | the same |

Events that reach no early firing join the ON_TIME one. Late events that reach no firing join one
when the window becomes final. The arrival that moves the watermark past a window's end fires it
ON_TIME, not EARLY. An instant of an interval is EARLY if it is not after the instant at which the
watermark passed the end.

`firings` determines which events fire together. As of an arrival, the log alone determines if a
window has fired.
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

EARLY, ON_TIME, LATE = "EARLY", "ON_TIME", "LATE"


@checked_class
@dataclass(frozen=True, init=False)
class Trigger:
    """The firings of a window in addition to its ON_TIME firing.

    Events that reach no early firing join the ON_TIME one; late events that reach no late firing
    join one when the window becomes final.

    Example:
        Trigger(early=Every("1 minute"), late=Count(100))

    Args:
        early: firings before the watermark passes the window's end; none by default.
        late: firings after it; at each arrival by default.
    """

    early: Firing
    late: Firing

    def __init__(self, early: Firing | None = None, late: Firing | None = None) -> None:
        object.__setattr__(self, "early", early or Never())
        object.__setattr__(self, "late", late or EachArrival())

    def __str__(self) -> str:
        early = f"early {self.early}, " if self.fires_early else ""
        return f"{early}on time, late {self.late}"

    @property
    def fires_early(self) -> bool:
        """True if a window may fire before its end."""
        return self.early != Never()

    @property
    def ranked(self) -> bool:
        """True if a firing depends on the number of events before an event."""
        return self.early.ranked or self.late.ranked
