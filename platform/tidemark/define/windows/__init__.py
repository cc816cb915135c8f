"""Windows: the spans of event time to which an event belongs.

| kind | windows |
| --- | --- |
| `Tumbling(size)` | consecutive, each event in one |
| `Sliding(size, slide)` | of one size, started every `slide`, so that they overlap |
| `Cumulating(size, step)` | from a fixed start, growing by `step` up to their size |
| `Calendar(unit, timezone)` | days, weeks, months or years of a time zone |
| `Session(gap)` | as long as events of a key follow each other within `gap` |
| `Global()` | all of time |

A window is half-open, [start, end): an event at `start` is inside, one at `end` is not. A window
kind is a small value whose `assign_windows` gives an event its windows. The windows depend on the
event's time alone, so they are the same in every run. Only sessions depend on other events: an
event's own session is [t, t + gap), and sessions that overlap or touch are merged.
"""

from tidemark.define.windows.aligned import Cumulating, Global, Sliding, Tumbling
from tidemark.define.windows.calendar import Calendar
from tidemark.define.windows.kind import Window
from tidemark.define.windows.session import Session

__all__ = ["Calendar", "Cumulating", "Global", "Session", "Sliding", "Tumbling", "Window"]
