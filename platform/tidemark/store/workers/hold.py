"""Hold a piece of work: own it, and renew its lease until it is released.

A process of this machine that exits loses its work at once. A process that can't be seen from here,
in another container or on another machine, loses it when its lease ends. Leases only decide who
tries: a process that continues after it has lost its work is refused by the commits of its tables.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from tidemark.base.counts import format_count
from tidemark.base.errors import TidemarkError
from tidemark.store.workers.owner import Owner, this_process
from tidemark.store.workers.record import SECOND, WorkerRecord
from tidemark.store.workers.record_store import WorkerRecords

LEASE_SECONDS = 40
"""Seconds for which an owner keeps its work without renewing the lease."""

_RENEW_SECONDS = 10.0
_POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


class OwnedElsewhereError(Exception):
    """Another owner has the work, and is alive."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(str(owner))
        self.owner = owner


class Hold:
    """A piece of work that this process owns.

    Args:
        record: the record as this process has written it.
        owner: this process, as the record names it.
    """

    def __init__(self, records: WorkerRecords, record: WorkerRecord, owner: Owner) -> None:
        self._records = records
        self._record = record
        self.kind = record.kind
        self.name = record.name
        self.owner = owner

    def change(self, change: Callable[[WorkerRecord], WorkerRecord]) -> bool:
        """Change the record. Return False, without a change, if the work has another owner now."""
        # Usually no other process has changed the record, so it need not be read again.
        changed = self._records.change_known(self._record, change)
        if changed is not None:
            self._record = changed
            return True
        is_own = True

        def change_own(record: WorkerRecord) -> WorkerRecord:
            nonlocal is_own
            is_own = record.owner == self.owner
            return change(record) if is_own else record

        changed = self._records.change(self.kind, self.name, change_own)
        if is_own:
            self._record = changed
        return is_own

    def renew(self) -> bool:
        """Renew the lease. Return False if the work has another owner now."""
        return self.change(lambda record: record.owned_by(self.owner, LEASE_SECONDS * SECOND))

    def release(self) -> None:
        """Make the work free for others."""
        self.change(WorkerRecord.without_owner)


@contextmanager
def hold_work(records: WorkerRecords, kind: str, name: str) -> Iterator[Hold]:
    """Hold a piece of work for the duration of a `with` block.

    If the work has an owner that can't be seen from here, wait until that owner renews its lease or
    loses it.

    Raises:
        OwnedElsewhereError: another owner has the work, and is alive.
    """
    found = records.read(kind, name)
    wait_for_renewal(records, found)
    process = this_process()
    owner = Owner(f"process {process.pid} on {process.machine}", process, uuid4().hex)

    def take(record: WorkerRecord) -> WorkerRecord:
        if record.owner is not None and not is_free(record):
            raise OwnedElsewhereError(record.owner)
        return record.owned_by(owner, LEASE_SECONDS * SECOND)

    taken = records.change_known(found, take) or records.change(kind, name, take)
    held = Hold(records, taken, owner)
    _renewals.add(held)
    try:
        yield held
    finally:
        _renewals.remove(held)
        # If this fails, only other machines wait for the lease to end.
        with suppress(OSError, TidemarkError):
            held.release()


def is_free(record: WorkerRecord) -> bool:
    """Return whether the work of a record can be taken."""
    owner = record.owner
    if owner is None or record.is_free:
        return True
    # This process has ended its hold, but could not write that.
    return owner.process == this_process() and not _renewals.has(owner)


def wait_for_renewal(records: WorkerRecords, before: WorkerRecord) -> None:
    """Wait until the owner of a record renews its lease or loses it, if the owner can't be seen
    from here. A warning says that this waits.

    Args:
        before: the record as it was read last.
    """
    process = None if before.owner is None else before.owner.process
    if before.is_free or before.owner is None or process is None or process.is_near:
        return
    left = max(before.until - time.time_ns() // 1000, 0) // SECOND
    _log.warning(
        "Waiting for up to %s: %s may still work on '%s'.",
        format_count(left, "second"),
        before.owner,
        before.name,
    )
    record = before
    while (record.owner, record.until) == (before.owner, before.until) and not record.is_free:
        time.sleep(_POLL_SECONDS)
        record = records.read(before.kind, before.name)


class _Renewals:
    """Renews the leases of all work that this process holds, in one thread."""

    def __init__(self) -> None:
        self._held = dict[Owner, Hold]()
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, held: Hold) -> None:
        with self._lock:
            self._held[held.owner] = held
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._renew_all, name="leases", daemon=True).start()

    def remove(self, held: Hold) -> None:
        with self._lock:
            self._held.pop(held.owner, None)

    def has(self, owner: Owner) -> bool:
        with self._lock:
            return owner in self._held

    def _renew_all(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                held = list(self._held.values())
                if not held:
                    self._is_running = False
                    return
            for each in held:
                self._renew(each)

    def _renew(self, held: Hold) -> None:
        try:
            is_own = held.renew()
        except (OSError, TidemarkError) as error:
            # Other attempts follow before the lease ends.
            _log.debug("The lease of %s '%s' can't be renewed: %s", held.kind, held.name, error)
            return
        if not is_own and self.has(held.owner):
            _log.warning("Another process has taken over: %s of '%s'.", held.kind, held.name)
            self.remove(held)


_renewals = _Renewals()
