"""The arrivals of a source as a sequence, of which only the newest are kept in memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log

MOST_KEPT = 1_000
"""The number of newest arrivals in memory. A stream may have millions of arrivals, and nearly all
connectors ask only for the last one."""


class RecordedArrivals(Sequence[Arrival]):
    """All arrivals of a source, in order. The index of an arrival is its number.

    An older arrival is read from the timeline when it is asked for, together with the arrivals that
    follow it. These stay in memory for as long as they are asked for between two commits: a
    connector of files asks for all arrivals in each poll.

    Args:
        log: the source's log. This process must be its only writer.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        with log.warehouse.pin_version(log.source.timeline_table):
            newest = log.find_last_arrival() if log.is_open else None
            count = 0 if newest is None else newest.arrival + 1
            self._first = max(count - MOST_KEPT, 0)
            self._kept = log.read_timeline(self._first - 1, count - 1) if count else []
        self._oldest_asked = count

    def __len__(self) -> int:
        return self._first + len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...

    @overload
    def __getitem__(self, index: slice) -> list[Arrival]: ...

    def __getitem__(self, index: int | slice) -> Arrival | list[Arrival]:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            if chosen:
                self._read_from(min(chosen))
            return [self._kept[number - self._first] for number in chosen]
        self._read_from(chosen)
        return self._kept[chosen - self._first]

    def __iter__(self) -> Iterator[Arrival]:
        self._read_from(0)
        return iter(self._kept)

    def append(self, arrivals: Iterable[Arrival]) -> None:
        """Append arrivals that have been recorded, and forget old ones that were not asked for."""
        self._kept += arrivals
        unneeded = min(self._oldest_asked - self._first, len(self._kept) - MOST_KEPT)
        # Removing many arrivals at once takes as long as removing one.
        if unneeded >= MOST_KEPT:
            del self._kept[:unneeded]
            self._first += unneeded
        self._oldest_asked = len(self)

    def _read_from(self, number: int) -> None:
        """Read the arrivals from a number on that are not in memory."""
        self._oldest_asked = min(self._oldest_asked, number)
        if number >= self._first:
            return
        # The next arrival that is asked for is often the one before. Twice as many arrivals as are
        # in memory make few reads of all of them.
        start = max(min(number, self._first - len(self._kept)), 0)
        self._kept[:0] = self.log.read_timeline(start - 1, self._first - 1)
        self._first = start
