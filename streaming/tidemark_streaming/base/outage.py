"""Outages: a long-running process waits until a service responds again.

Brokers or an engine that do not respond recover on their own, or an operator restarts them. The
waiting process retries with growing waits. It reports each reason once, and reports when the outage
is over. An error that requires a decision by a person is not an outage: it is raised.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from tidemark.base.errors import EngineError, EngineLostError, TidemarkError
from tidemark.engine.process import ProgressCallback, ignore_progress

FIRST_WAIT = 0.5
"""Seconds before the first retry; each next wait is twice as long, up to the longest."""

LONGEST_WAIT = 30.0

_T = TypeVar("_T")


def engine_lost(error: Exception) -> bool:
    """Return whether an error means that the engine is lost, with all sessions and DataFrames."""
    return isinstance(error, EngineError) and error.retriable


class Outage:
    """The outages of one long-running task, one after the other."""

    def __init__(
        self,
        on_progress: ProgressCallback = ignore_progress,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._report = on_progress
        self._sleep = sleep
        self._wait = FIRST_WAIT
        self._begun: float | None = None
        self._reported = set[str]()

    def wait_to_retry(self, error: TidemarkError) -> None:
        """Wait before the next retry. Report the error, unless it was reported in this outage.

        Raises:
            TidemarkError: `error` itself, if it is not transient.
        """
        if not error.retriable:
            raise error
        self._begun = self._begun or time.monotonic()
        message = str(error)
        if message not in self._reported:
            self._reported.add(message)
            self._report(f"{message} Waiting until it is back.")
        self._sleep(self._wait)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def survive_loss(self, attempt: Callable[[], _T]) -> _T:
        """Make an attempt, and return its result. Retry it if the engine is lost during it.

        An engine that can't be started or reached at all is an error.
        """
        try:
            return attempt()
        except EngineLostError as error:
            return self.retry_attempt(error, attempt)

    def retry_attempt(self, error: TidemarkError, attempt: Callable[[], _T]) -> _T:
        """Retry an attempt after `error`, with a wait before each try, and return its result.

        Raises:
            TidemarkError: `error` or the error of an attempt, if that error is not transient.
        """
        while True:
            self.wait_to_retry(error)
            try:
                return attempt()
            except TidemarkError as next_error:
                error = next_error

    def end_outage(self) -> None:
        """Report that an outage is over, if there was one."""
        if self._begun is None:
            return
        self._report(
            f"The outage ended after {time.monotonic() - self._begun:.0f} seconds: continuing."
        )
        self._begun = None
        self._wait = FIRST_WAIT
        self._reported.clear()
