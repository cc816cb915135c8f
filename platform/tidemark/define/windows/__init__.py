"""Windows: which spans of event time an event belongs to.

| kind | windows |
| --- | --- |
| `Tumbling(size)` | one after the other, each event in one |
| `Sliding(size, slide)` | of one size, begun every `slide`, so that they overlap |
| `Cumulating(size, step)` | from a fixed start, growing by `step` until they have their size |
| `Calendar(unit, timezone)` | days, weeks, months or years of a time zone |
| `Session(gap)` | as long as events of a key follow each other within `gap` |
| `Global()` | all of time |

A window is half-open, [start, end): an event at `start` is inside, one at `end` is not. A window
kind is a small value whose `assign` gives an event its windows, as a function of the event's time
alone, so that it is the same in every run. A session is the only window that depends on other
events: an event's own is [t, t + gap), and those that meet are merged.
"""

from tidemark.define.windows.aligned import Cumulating, Global, Sliding, Tumbling
from tidemark.define.windows.calendar import Calendar
from tidemark.define.windows.kind import Window
from tidemark.define.windows.session import Session

__all__ = ["Calendar", "Cumulating", "Global", "Session", "Sliding", "Tumbling", "Window"]
