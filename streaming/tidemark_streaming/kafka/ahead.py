"""Reading ahead: records are read while those before them are worked on."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event
from typing import Generic, TypeVar

T = TypeVar("T")

Read = Callable[[Sequence[str], Event], T]
"""Reads what these positions tell, until it is told to give up."""


class Ahead(Generic[T]):
    """Reads one piece ahead, in a thread: never two at once.

    Args:
        read: gives the same whenever it is asked for the same.
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read
        self._begun: tuple[Sequence[str], Future[T]] | None = None
        self._enough = Event()

    def begin(self, positions: Sequence[str]) -> None:
        """Begin to read what will be asked for next; nothing ends what was begun before."""
        self._end()
        if positions:
            self._begun = positions, self._thread.submit(self._read, positions, self._enough)

    def take(self, positions: Sequence[str]) -> T:
        """What they tell, read by now or not.

        Raises:
            Exception: what reading it raises.
        """
        if self._begun is None or self._begun[0] != positions:
            self._end()
            return self._read(positions, self._enough)
        try:
            found = self._begun[1].result()
        except Exception:
            self._begun = None
            raise
        # After an interrupt it is still begun: `begin` ends it.
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
        return ThreadPoolExecutor(1, thread_name_prefix="reads ahead")
