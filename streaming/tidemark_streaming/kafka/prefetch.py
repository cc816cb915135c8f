"""Read-ahead: read the next records while the previous ones are being processed."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event
from typing import Generic, TypeVar

_T = TypeVar("_T")

_Read = Callable[[Sequence[str], Event], _T]
"""A function that reads the records at positions; it gives up once the event is set."""


class Prefetcher(Generic[_T]):
    """Reads one request ahead in a thread, never two at once.

    Args:
        read: must return the same result whenever it gets the same positions.
    """

    def __init__(self, read: _Read[_T]) -> None:
        self._read = read
        self._begun: tuple[Sequence[str], Future[_T]] | None = None
        self._enough = Event()

    def begin(self, positions: Sequence[str]) -> None:
        """Start to read the positions that will be requested next.

        An earlier read that was not taken is canceled.
        """
        self._end()
        if positions:
            self._begun = positions, self._thread.submit(self._read, positions, self._enough)

    def take(self, positions: Sequence[str]) -> _T:
        """Return the result for the given positions. If it is not ready, wait for it or read now.

        Raises:
            Exception: any error of the read.
        """
        if self._begun is None or self._begun[0] != positions:
            self._end()
            return self._read(positions, self._enough)
        try:
            found = self._begun[1].result()
        except Exception:
            self._begun = None
            raise
        # After a KeyboardInterrupt the read is still running; the next `begin` cancels it.
        self._begun = None
        return found

    def _end(self) -> None:
        if self._begun is not None:
            self._enough.set()
            wait([self._begun[1]])
            self._enough.clear()
            self._begun = None

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="kafka prefetch")
