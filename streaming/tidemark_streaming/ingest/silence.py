"""Measure how long an ingest has found a source silent, and when a heartbeat is due.

Only polls of this process count. The silence begins with the first poll without data after the
process started, after the last data, or after the last outage, whichever is latest. While an ingest
or a broker was down, the source may not have been silent: its producers may have buffered records
that they are about to send. The same is true after the machine has slept, which shows as a jump of
the wall clock. A clock that was set looks the same, so in both cases the silence begins again.
"""

import time
from collections.abc import Callable

from tidemark_streaming.connector import CLOCK_SLACK


class Silence:
    """The silence of one source, as the polls of an ingest find it.

    Args:
        heartbeat: the time between two heartbeats, in microseconds; None for no heartbeats.
        elapsed: returns the seconds of a clock that runs only while the machine runs, and never
            goes back.
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

    def end_silence(self) -> None:
        """End the silence, because the source has data or polls have failed."""
        self._since = None

    def record_empty_poll(self) -> int | None:
        """Record a poll that found no data. If a heartbeat is due, return the length of the silence
        so far, in microseconds; else return None.
        """
        if self._heartbeat is None:
            return None
        elapsed = self._elapsed()
        offset = self._wall() - elapsed
        if self._since is None or abs(offset - self._offset) * 1e6 > CLOCK_SLACK:
            self._since = self._last = elapsed
            self._offset = offset
        if (elapsed - self._last) * 1e6 < self._heartbeat:
            return None
        self._last = elapsed
        return int((elapsed - self._since) * 1e6)
