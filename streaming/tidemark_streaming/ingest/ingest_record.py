"""The record of a source's ingest: which process ingests, and the error that blocks the source.

Only one ingest of a source runs at a time. Some errors require manual action: an incompatible
change of the source, records that were deleted, a file that was changed. Such an error blocks only
its own source, until another ingest of the source begins. The error is in the record
(`store.workers`), so that monitoring sees it, no matter which process ingests.

Dagster's sensor of a source renews a record at each tick. Without it, Tidemark would not show
whether the sensor is on.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.log_rewrite import wait_for_rewrite
from tidemark.store.operations import UnfinishedOperationError
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.hold import Hold, OwnedElsewhereError, hold_work, is_free
from tidemark.store.workers.owner import Owner
from tidemark.store.workers.record import SECOND, WorkerRecord
from tidemark.store.workers.record_store import INGEST, POLL, records_of, worker_records

_REFUSED = "refused"
"""The report of an ingest that ended with an error that requires manual action."""


@contextmanager
def lock_ingest(warehouse: Warehouse, source: Source) -> Iterator[Hold]:
    """Keep other ingests of a source from running for the duration of a `with` block.

    If a process rewrites the event log, wait. If an ingest on another machine may have been
    killed, wait until that is known, for less than a minute.

    Raises:
        ConflictError: another process ingests the source.
    """
    wait_for_rewrite(warehouse, source)
    records = worker_records(warehouse.location, warehouse.database)
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(hold_work(records, INGEST, source.name))
        except OwnedElsewhereError as error:
            raise ConflictError(
                f"Source '{source.name}' is being ingested already, by {error.owner}: wait "
                "until it ends, or stop it."
            ) from error
        yield lock


def is_ingesting(settings: Settings, source: str) -> bool:
    """Return whether an ingest of a source runs at present."""
    return not is_free(records_of(settings).read_record(INGEST, source))


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
def record_error(lock: Hold) -> Iterator[Ingest]:
    """Run an ingest in a `with` block. Delete the recorded error first. If an error that requires
    manual action ends the ingest, record it.
    """
    ingest = Ingest()
    _record_error_text(lock, None)
    try:
        yield ingest
    except (ConflictError, UnfinishedOperationError):
        # Another ingest, or an operation that is itself a finding, blocks this one.
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.other_error:
            _record_error_text(lock, str(error))
        raise


def blocking_error(settings: Settings, source: str) -> str | None:
    """Return the message of the error that blocks a source; None if the source is not blocked."""
    return records_of(settings).read_record(INGEST, source).report.get(_REFUSED)


POLL_STALE_SECONDS = 120.0
"""The seconds after which a poll is stale."""


def record_poll(settings: Settings, source: str) -> None:
    """Record that a sensor polls a source now."""
    lasts = int(POLL_STALE_SECONDS * SECOND)
    records_of(settings).change_record(
        POLL, source, lambda record: record.owned_by(Owner("sensor"), lasts)
    )


def is_polled(settings: Settings, source: str) -> bool:
    """Return whether a sensor polled a source in the last two minutes."""
    return records_of(settings).read_record(POLL, source).has_lease


class RecordedIngest(NamedTuple):
    """The state of a source's ingest, from the records of the processes that may do it.

    Args:
        at_work: see `is_ingesting`.
        refused: see `blocking_error`.
        by_sensor: see `is_polled`.
    """

    at_work: bool
    refused: str | None
    by_sensor: bool


def read_ingests(settings: Settings, sources: Iterable[str]) -> dict[str, RecordedIngest]:
    """Return the ingest of each source, from one listing of the records."""
    all_records = records_of(settings).list_records(INGEST, POLL)
    records = {(record.kind, record.name): record for record in all_records}
    ingests = dict[str, RecordedIngest]()
    for source in sources:
        ingest = records.get((INGEST, source), WorkerRecord(INGEST, source))
        poll = records.get((POLL, source), WorkerRecord(POLL, source))
        ingests[source] = RecordedIngest(
            not is_free(ingest), ingest.report.get(_REFUSED), poll.has_lease
        )
    return ingests


def _record_error_text(lock: Hold, error: str | None) -> None:
    def set_error(record: WorkerRecord) -> WorkerRecord:
        return replace(record, report={} if error is None else {_REFUSED: error})

    # An error here is ignored: if the disk is full, the ingest itself reports it.
    with suppress(TidemarkError):
        lock.change_record(set_error)
