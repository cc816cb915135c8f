"""Outages: who goes on for ever waits until what does not answer is back.

That brokers or the engine don't answer passes by itself, or by the hand of somebody who need not
know who waits. It is tried again and again, later each time; why is said, each reason once, and
that it is over.
Whatever a person must decide is no outage: it is raised.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import grpc
from pyspark.errors import PySparkException

from tidemark.base.errors import EngineError, TidemarkError
from tidemark.engine.connect import gone
from tidemark.engine.process import Tell, silent

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds until the first new try; each next wait is twice as long, up to the longest."""

T = TypeVar("T")

ERRORS = (TidemarkError, PySparkException, grpc.RpcError)
"""What may tell of an outage."""


def engine_lost(error: Exception) -> bool:
    """Whether the engine went away: what it gave, sessions and their frames, is of no use now."""
    return (isinstance(error, EngineError) and error.passing) or gone(error)


class Outage:
    """The outages that one piece of endless work meets, one after the other.

    Args:
        tell: takes the sentences.
        sleep: waits so many seconds.
    """

    def __init__(self, tell: Tell = silent, sleep: Callable[[float], None] = time.sleep) -> None:
        self._tell = tell
        self._sleep = sleep
        self._wait = FIRST_WAIT
        self._begun: float | None = None
        self._said = set[str]()

    def wait(self, error: Exception) -> None:
        """Wait before the next try.

        Raises:
            Exception: `error` itself, where it does not pass.
        """
        lost = engine_lost(error)
        if not lost and not (isinstance(error, TidemarkError) and error.passing):
            raise error
        self._begun = self._begun or time.monotonic()
        said = str(error) if isinstance(error, TidemarkError) else "The engine is gone."
        if said not in self._said:
            self._said.add(said)
            self._tell(f"{said} Waiting until it is back.")
        self._sleep(self._wait)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def again(self, error: Exception, attempt: Callable[[], T]) -> T:
        """What an attempt gives, made again and again after `error`, with a wait before each.

        Raises:
            Exception: `error`, or the one of an attempt, where it does not pass.
        """
        while True:
            self.wait(error)
            try:
                return attempt()
            except ERRORS as next_error:
                error = next_error

    def over(self) -> None:
        """It works: an outage that there was is over."""
        if self._begun is None:
            return
        self._tell(f"It is back after {time.monotonic() - self._begun:.0f} seconds: going on.")
        self._begun, self._wait = None, FIRST_WAIT
        self._said.clear()
