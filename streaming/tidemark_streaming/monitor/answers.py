"""Poll other systems in the background, so that one that does not answer delays nothing."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")
_THREADS = 4


class Answers(Generic[T]):
    """The newest answers to questions, each of which is asked again after some seconds.

    Args:
        every: seconds between two requests.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ask")
        self._asked = dict[str, tuple[float, Future[T]]]()
        self._known = dict[str, T]()

    def newest(self, name: str, ask: Callable[[], T], patience: float = 0.0) -> T | None:
        """Return the newest answer to a question, or None before the first.

        Args:
            name: identifies the question.
            patience: seconds to wait for the first answer.
        """
        self._take(name)
        asked = self._asked.get(name)
        if asked is None or (asked[1].done() and time.monotonic() - asked[0] > self._every):
            asked = (time.monotonic(), self._pool.submit(ask))
            self._asked[name] = asked
        if name not in self._known and patience:
            wait([asked[1]], patience)
            self._take(name)
        return self._known.get(name)

    def _take(self, name: str) -> None:
        asked = self._asked.get(name)
        if asked is None or not asked[1].done():
            return
        try:
            self._known[name] = asked[1].result()
        except BaseException:
            # Ask again: the error is not kept.
            del self._asked[name]
            raise
