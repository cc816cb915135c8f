"""Triggers: when a window's result is published.

A window fires EARLY while it is open, if its trigger asks for it; ON_TIME once, at the first
arrival whose watermark passes its end, if it had any event on time; and LATE when admitted late
events come. It is final when the watermark has passed its end by the allowed lateness: nothing
will change it any more.

| firing | EARLY | LATE |
| --- | --- | --- |
| `Every(interval)` | at multiples of the interval on the processing clock | the same |
| `Count(n)` | whenever n more events have come, in the order (arrival, position) | the same |
| `EachArrival()` | after each arrival that brought events | the same |

Events that reach no early firing join the ON_TIME one, and late events that reach no firing join
one when the window becomes final. The arrival that moves the watermark past a window's end fires
it ON_TIME, not EARLY. An interval's instant is EARLY when it is not after the one at which the
watermark passed the end.

Every event joins a *slot*, which its own row tells: the unit that fires whole or not at all. So
which slots of a window have fired, as of an arrival, is a function of the log alone.
"""

from dataclasses import dataclass, field

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import describe, duration

EARLY, ON_TIME, LATE = "EARLY", "ON_TIME", "LATE"


@dataclass(frozen=True, init=False)
class Every:
    """Fire at multiples of an interval on the processing clock, counted from 1970."""

    interval: int

    def __init__(self, interval: str) -> None:
        object.__setattr__(self, "interval", duration(interval))
        if self.interval <= 0:
            raise DefinitionError(f"A trigger's interval is more than zero, not '{interval}'.")

    def __str__(self) -> str:
        return f"every {describe(self.interval)}"


@dataclass(frozen=True)
class Count:
    """Fire whenever so many more events have come."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise DefinitionError(f"A trigger's count is 1 or more, not {self.n}.")

    def __str__(self) -> str:
        return f"every {self.n} events"


@dataclass(frozen=True)
class EachArrival:
    """Fire after each arrival that brought events."""

    def __str__(self) -> str:
        return "each arrival"


Firing = Every | Count | EachArrival


@dataclass(frozen=True)
class Trigger:
    """When a window fires beside its ON_TIME firing.

    Args:
        early: before the watermark passes the window's end; not at all by default.
        late: after it.
    """

    early: Firing | None = None
    late: Firing = field(default_factory=EachArrival)

    def __str__(self) -> str:
        early = f"early {self.early}, " if self.early else ""
        return f"{early}on time, late {self.late}"
