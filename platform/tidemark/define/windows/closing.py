"""When all windows of a range of event time have closed."""

from tidemark.base.instants import INFINITY
from tidemark.define.windows.aligned import Cumulating, Sliding, Tumbling
from tidemark.define.windows.kind import Window
from tidemark.define.windows.session import Session


def closing(window: Window, end: int) -> int:
    """The watermark that has passed the end of every window that starts before `end`.

    A session that started before `end` may go on beyond any watermark: for sessions it is the one
    that has passed those without an event after `end`.
    """
    if isinstance(window, Session):
        return end + window.gap
    if isinstance(window, Tumbling | Sliding | Cumulating):
        step = window.slide if isinstance(window, Sliding) else window.size
        last = (end - 1 - window.offset) // step * step + window.offset
        return last + window.size
    return min(end + window.reach, INFINITY)
