"""Measure how long an ingest has found a source silent, and when a heartbeat is due.

Only what this process has seen counts: the silence begins with the first poll that found no data
since the process started, since the last data, and since the last outage. While an ingest or a
broker was down, the source may not have been silent: its producers may be about to send what they
kept. The same is true after the machine has slept. Its clock has then jumped. A clock that was set
looks the same, so in both cases the silence begins again.
"""

import time
from collections.abc import Callable

from tidemark_streaming.connector import CLOCK_SLACK


class Silence:
    """The silence of one source, as the polls of an ingest find it.

    Args:
        heartbeat: the time between two heartbeats, in microseconds; None for no heartbeats.
        elapsed: returns seconds that only pass while the machine runs, and never go back.
        wall: returns the wall clock, in seconds.
    """

    def __init__(
        self,
        heartbeat: int | None,
        elapsed: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._heartbeat = heartbeat
        self._elapsed = elapsed
        self._wall = wall
        self._since: float | None = None
        self._offset = self._last = 0.0

    def end(self) -> None:
        """Note that the source has data, or that polls have failed."""
        self._since = None

    def poll(self) -> int | None:
        """Note a poll that found no data. If a heartbeat is due, return the silence so far.

        It is in microseconds.
        """
        if self._heartbeat is None:
            return None
        now = self._elapsed()
        offset = self._wall() - now
        if self._since is None or abs(offset - self._offset) * 1e6 > CLOCK_SLACK:
            self._since = self._last = now
            self._offset = offset
        if (now - self._last) * 1e6 < self._heartbeat:
            return None
        self._last = now
        return int((now - self._since) * 1e6)
