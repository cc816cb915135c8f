"""The record of a source's ingest: which process ingests, and the error that blocks the source.

Only one ingest of a source runs at a time. Some errors require manual action: an incompatible
change of the source, records that were deleted, a file that was changed. Such an error blocks only
its own source, until another ingest of the source begins. The error is in the record
(`store.workers`), so that monitoring sees it, no matter which process ingests.

Dagster's sensor of a source renews a record at each tick. Without it, Tidemark would not show
whether the sensor is on.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.operations import UnfinishedOperationError
from tidemark.store.upkeep.source_lock import wait_for_erasure
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.hold import Hold, OwnedElsewhereError, hold_work, is_free
from tidemark.store.workers.owner import Owner
from tidemark.store.workers.record import SECOND, WorkerRecord
from tidemark.store.workers.record_store import INGEST, POLL, WorkerRecords, worker_records

_REFUSED = "refused"
"""The report of an ingest that ended with an error that requires manual action."""


@contextmanager
def lock_ingest(warehouse: Warehouse, source: Source) -> Iterator[Hold]:
    """Keep other ingests of a source from running for the duration of a `with` block.

    If the source's events are being erased, wait. If an ingest on another machine may have been
    killed, wait until that is known, for less than a minute.

    Raises:
        ConflictError: another process ingests the source.
    """
    wait_for_erasure(warehouse, source)
    records = worker_records(warehouse.location, warehouse.database)
    with ExitStack() as stack:
        try:
            held = stack.enter_context(hold_work(records, INGEST, source.name))
        except OwnedElsewhereError as error:
            raise ConflictError(
                f"Source '{source.name}' is being ingested already, by {error.owner}: wait "
                "until it ends, or stop it."
            ) from error
        yield held


def is_ingesting(settings: Settings, source: str) -> bool:
    """Return whether an ingest of a source runs at present."""
    return any(record.name == source and not is_free(record) for record in _read_all(settings))


class Ingest:
    """An ingest that may also do other work, such as runs. Errors of other work do not block the
    source."""

    def __init__(self) -> None:
        self.other_error: TidemarkError | None = None

    @contextmanager
    def other_work(self) -> Iterator[None]:
        """Mark the work in a `with` block as other work than the ingest."""
        try:
            yield
        except TidemarkError as error:
            self.other_error = error
            raise


@contextmanager
def record_error(held: Hold) -> Iterator[Ingest]:
    """Run an ingest in a `with` block. Delete the recorded error first. If an error that requires
    manual action ends the ingest, record it.
    """
    ingest = Ingest()
    _report(held, None)
    try:
        yield ingest
    except (ConflictError, UnfinishedOperationError):
        # Another ingest, or an operation that is itself a finding, blocks this one.
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.other_error:
            _report(held, str(error))
        raise


def blocking_error(settings: Settings, source: str) -> str | None:
    """Return the message of the error that blocks a source; None if the source is not blocked."""
    found = (record.report.get(_REFUSED) for record in _read_all(settings) if record.name == source)
    return next(found, None)


POLL_STALE_SECONDS = 120.0
"""The seconds after which a poll is stale."""


def record_poll(settings: Settings, source: str) -> None:
    """Record that a sensor polls a source now."""
    lasts = int(POLL_STALE_SECONDS * SECOND)
    _records(settings).change(POLL, source, lambda record: record.owned_by(Owner("sensor"), lasts))


def is_polled(settings: Settings, source: str) -> bool:
    """Return whether a sensor polled a source in the last two minutes."""
    found = _records(settings).read_all(POLL)
    return any(record.name == source and record.has_lease for record in found)


def _report(held: Hold, error: str | None) -> None:
    def change(record: WorkerRecord) -> WorkerRecord:
        return replace(record, report={} if error is None else {_REFUSED: error})

    # An error here is ignored: if the disk is full, the ingest itself reports it.
    with suppress(TidemarkError):
        held.change(change)


def _read_all(settings: Settings) -> list[WorkerRecord]:
    return _records(settings).read_all(INGEST)


def _records(settings: Settings) -> WorkerRecords:
    return worker_records(settings.warehouse, settings.database)
