"""Read-ahead: read the next records while the previous ones are being processed."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event
from typing import Generic, TypeVar

_T = TypeVar("_T")

_Read = Callable[[Sequence[str], Event], _T]
"""A function that reads the records at positions. The function gives up once the event is set."""


class Prefetcher(Generic[_T]):
    """Reads the next records ahead in a thread, with at most one read at a time.

    Args:
        read: reads records. For the same positions, it must always return the same result.
    """

    def __init__(self, read: _Read[_T]) -> None:
        self._read = read
        self._begun: tuple[Sequence[str], Future[_T]] | None = None
        self._is_cancelled = Event()

    def begin_read(self, positions: Sequence[str]) -> None:
        """Start to read the positions that will be requested next.

        Cancel an earlier read whose result was not taken. Without positions, only cancel.
        """
        self._cancel_read()
        if positions:
            self._begun = (
                positions,
                self._read_thread.submit(self._read, positions, self._is_cancelled),
            )

    def take_result(self, positions: Sequence[str]) -> _T:
        """Return the result for the given positions. If their read has begun, wait until it ends;
        otherwise read now.

        Raises:
            Exception: any error of the read.
        """
        if self._begun is None or self._begun[0] != positions:
            self._cancel_read()
            return self._read(positions, self._is_cancelled)
        try:
            fetched = self._begun[1].result()
        except Exception:
            self._begun = None
            raise
        # After a KeyboardInterrupt the read is still running; the next `begin_read` cancels it.
        self._begun = None
        return fetched

    def _cancel_read(self) -> None:
        if self._begun is not None:
            self._is_cancelled.set()
            wait([self._begun[1]])
            self._is_cancelled.clear()
            self._begun = None

    @cached_property
    def _read_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="kafka prefetch")
