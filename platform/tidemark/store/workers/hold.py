"""Hold a piece of work: own it, and renew its lease until it is released.

A process of this machine that exits loses its work at once. A process that can't be seen from here,
in another container or on another machine, loses it when its lease ends. Leases only decide who
tries: a process that continues after it has lost its work is refused by the commits of its tables.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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

    @property
    def is_lost(self) -> bool:
        """True if a renewal of the lease has shown that the work has another owner."""
        return not _renewals.has_hold(self.owner)

    def change_record(self, change: Callable[[WorkerRecord], WorkerRecord]) -> bool:
        """Change the record. Return False, without a change, if the work has another owner now."""
        # Usually no other process has changed the record, so it need not be read again.
        changed = self._records.try_change_record(self._record, change)
        if changed is not None:
            self._record = changed
            return True
        is_own = True

        def change_own(record: WorkerRecord) -> WorkerRecord:
            nonlocal is_own
            is_own = record.owner == self.owner
            if not is_own:
                return record
            return change(record)

        changed = self._records.change_record(self.kind, self.name, change_own)
        if is_own:
            self._record = changed
        return is_own

    def renew_lease(self) -> bool:
        """Renew the lease. Return False if the work has another owner now."""
        return self.change_record(
            lambda record: record.owned_by(self.owner, LEASE_SECONDS * SECOND)
        )

    def release_work(self) -> None:
        """Make the work free for others."""
        self.change_record(WorkerRecord.without_owner)


@contextmanager
def hold_work(records: WorkerRecords, kind: str, name: str) -> Iterator[Hold]:
    """Hold a piece of work for the duration of a `with` block.

    If the work has an owner that can't be seen from here, wait until that owner renews its lease or
    loses it.

    Raises:
        OwnedElsewhereError: another owner has the work, and is alive.
    """
    current_record = records.read_record(kind, name)
    wait_for_renewal(records, current_record)
    process = this_process()
    owner = Owner(f"process {process.pid} on {process.machine}", process, uuid4().hex)

    def take_hold(record: WorkerRecord) -> WorkerRecord:
        if record.owner is not None and not is_free(record):
            raise OwnedElsewhereError(record.owner)
        return record.owned_by(owner, LEASE_SECONDS * SECOND)

    # Another thread may read the record before this one has its hold.
    with _renewals.announce_hold(owner):
        own_record = records.try_change_record(current_record, take_hold)
        if own_record is None:
            own_record = records.change_record(kind, name, take_hold)
        hold = Hold(records, own_record, owner)
        _renewals.add_hold(hold)
    try:
        yield hold
    finally:
        _renewals.remove_hold(hold)
        # If this fails, only other machines wait for the lease to end.
        with suppress(OSError, TidemarkError):
            hold.release_work()


@contextmanager
def hold_when_free(
    records: WorkerRecords,
    kind: str,
    name: str,
    *,
    max_seconds: float,
    on_wait: Callable[[Owner], object],
    timeout_error: Callable[[Owner], TidemarkError],
) -> Iterator[Hold]:
    """Hold a piece of work for the duration of a `with` block, once no other owner has it.

    Args:
        max_seconds: the seconds after which this gives up.
        on_wait: is called with each owner for whose end this waits.
        timeout_error: returns the error to raise if an owner still has the work after that time.
    """
    deadline = time.monotonic() + max_seconds
    with ExitStack() as stack:
        hold: Hold | None = None
        while hold is None:
            try:
                hold = stack.enter_context(hold_work(records, kind, name))
            except OwnedElsewhereError as error:
                if time.monotonic() > deadline:
                    raise timeout_error(error.owner) from None
                on_wait(error.owner)
                _wait_for_release(records, kind, name, error.owner, deadline)
        yield hold


def is_free(record: WorkerRecord) -> bool:
    """Return whether the work of a record can be taken."""
    owner = record.owner
    if owner is None or record.is_free:
        return True
    # This process has ended its hold, but could not write that.
    return owner.process == this_process() and not _renewals.has_hold(owner)


def wait_for_renewal(records: WorkerRecords, seen_record: WorkerRecord) -> None:
    """Wait until the owner of a record renews its lease or loses it, if the owner can't be seen
    from here. A warning says that this waits.

    Args:
        seen_record: the record as it was read last.
    """
    owner = seen_record.owner
    if seen_record.is_free or owner is None:
        return
    if owner.process is None or owner.process.is_near:
        return
    seconds_left = max(seen_record.until - time.time_ns() // 1000, 0) // SECOND
    _log.warning(
        "Waiting for up to %s: %s may still work on '%s'.",
        format_count(seconds_left, "second"),
        owner,
        seen_record.name,
    )
    record = seen_record
    while record.owner == owner and record.until == seen_record.until and not record.is_free:
        time.sleep(_POLL_SECONDS)
        record = records.read_record(seen_record.kind, seen_record.name)


def _wait_for_release(
    records: WorkerRecords, kind: str, name: str, owner: Owner, deadline: float
) -> None:
    """Wait until an owner no longer has a piece of work, or until the deadline."""
    while time.monotonic() <= deadline:
        record = records.read_record(kind, name)
        if record.owner != owner or is_free(record):
            return
        time.sleep(_POLL_SECONDS)


class _Renewals:
    """Renews the leases of all work that this process holds, in one thread."""

    def __init__(self) -> None:
        self._holds = dict[Owner, Hold]()
        self._announced = set[Owner]()
        self._lock = threading.Lock()
        self._is_running = False

    @contextmanager
    def announce_hold(self, owner: Owner) -> Iterator[None]:
        """Count the work of an owner as held, while its record is written."""
        with self._lock:
            self._announced.add(owner)
        try:
            yield
        finally:
            with self._lock:
                self._announced.discard(owner)

    def add_hold(self, hold: Hold) -> None:
        with self._lock:
            self._holds[hold.owner] = hold
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._renew_leases, name="leases", daemon=True).start()

    def remove_hold(self, hold: Hold) -> None:
        with self._lock:
            self._holds.pop(hold.owner, None)

    def has_hold(self, owner: Owner) -> bool:
        with self._lock:
            return owner in self._holds or owner in self._announced

    def _renew_leases(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                holds = list(self._holds.values())
                if not holds:
                    self._is_running = False
                    return
            for hold in holds:
                self._renew_lease(hold)

    def _renew_lease(self, hold: Hold) -> None:
        try:
            is_own = hold.renew_lease()
        except (OSError, TidemarkError) as error:
            # Other attempts follow before the lease ends.
            _log.debug("The lease of %s '%s' can't be renewed: %s", hold.kind, hold.name, error)
            return
        if not is_own and self.has_hold(hold.owner):
            _log.warning("Another process has taken over: %s of '%s'.", hold.kind, hold.name)
            self.remove_hold(hold)


_renewals = _Renewals()
