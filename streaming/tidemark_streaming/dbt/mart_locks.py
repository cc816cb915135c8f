"""Lock marts, so that only one process builds a mart at a time.

Two builds of a mart in two engines could both commit to its table, and the log store of Spark in an
object store would lose one of the commits. The process that builds a mart therefore holds a worker
record (`store.workers`), which all machines see. Another build of the mart waits for it, and then
usually has nothing to do.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from tidemark.base.errors import ConflictError
from tidemark.base.settings import Settings
from tidemark.store.workers.hold import Hold, hold_when_free
from tidemark.store.workers.owner import Owner
from tidemark.store.workers.record_store import MART, records_of

MAX_SECONDS = 3600.0
"""Seconds for which a build waits for another build of the same mart before it fails."""

_log = logging.getLogger(__name__)


class MartLocks:
    """The locks of the marts that a build writes."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._holds = holds

    @property
    def are_lost(self) -> bool:
        """True if another process has taken over a mart, because this one was paused too long."""
        return any(hold.is_lost for hold in self._holds)

    def raise_if_lost(self) -> None:
        """Raise `ConflictError` if another process has taken over a mart."""
        for hold in self._holds:
            if hold.is_lost:
                raise ConflictError(
                    f"Another process builds mart '{hold.name}' now, because this build did not "
                    "renew its lease. Run the command again.",
                    retriable=True,
                )


@contextmanager
def lock_marts(settings: Settings, marts: Iterable[str]) -> Iterator[MartLocks]:
    """Keep other builds of some marts from running for the duration of a `with` block.

    If another process builds one of the marts, wait for it. A warning names that process.

    Raises:
        ConflictError: another build takes longer than `MAX_SECONDS`.
    """
    records = records_of(settings)
    holds = list[Hold]()
    with ExitStack() as stack:
        # All builds lock marts in the same order, so that no two of them wait for each other.
        for mart in sorted(set(marts)):
            hold = hold_when_free(
                records,
                MART,
                mart,
                max_seconds=MAX_SECONDS,
                on_wait=partial(_report_wait, mart),
                timeout_error=partial(_waited_too_long, mart),
            )
            holds.append(stack.enter_context(hold))
        yield MartLocks(holds)


def _report_wait(mart: str, owner: Owner) -> None:
    _log.warning("Waiting for %s, which builds mart '%s'.", owner, mart)


def _waited_too_long(mart: str, owner: Owner) -> ConflictError:
    return ConflictError(
        f"Gave up after {MAX_SECONDS:,.0f} seconds of waiting for {owner}, which builds mart "
        f"'{mart}'. Retry when it has ended, or stop it.",
        retriable=True,
    )
