"""Show that a process rewrites the event log of a source, so that new runs wait for it.

An erasure deletes events from the log, and a promotion of a rebuilt derived source replaces it. The
process holds a worker record (`store.workers`), which all machines see. Runs in parallel with an
erasure are safe without this record (`store.epoch`). But a stream commits so often that the erasure
could hardly replace its windows.

A run looks for the record only if the table `operations` has an unfinished operation, so other runs
read nothing in addition.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tidemark.base.errors import ConflictError
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback
from tidemark.store.operations import Kind, list_unfinished
from tidemark.store.workers.hold import hold_when_free, is_free
from tidemark.store.workers.owner import Owner
from tidemark.store.workers.record_store import REWRITE, worker_records

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

MAX_SECONDS = 3600.0
"""Seconds for which a process waits for a rewrite before it fails."""

REPORT_SECONDS = 3.0
"""Seconds of waiting after which a run logs that it waits."""

_POLL_SECONDS = 0.5

_log = logging.getLogger(__name__)
_reported = set[str]()
"""The ids of the interrupted erasures that this process has reported."""


class _Held(threading.local):
    """The sources whose logs this thread rewrites. Its own runs do not wait for that."""

    def __init__(self) -> None:
        self.sources = set[tuple[str, str]]()


_held = _Held()


@contextmanager
def hold_rewrite(
    warehouse: "Warehouse", source: Source, on_progress: ProgressCallback
) -> Iterator[None]:
    """Let new runs and ingests of a source wait until the `with` block ends.

    If another process rewrites the log of the source, wait for it first.
    """
    records = worker_records(warehouse.location, warehouse.database)
    key = warehouse.path_of(""), source.name

    def report_wait(owner: Owner) -> None:
        on_progress(f"wait for {owner}, which rewrites {source.name}")

    with hold_when_free(
        records,
        REWRITE,
        source.name,
        max_seconds=MAX_SECONDS,
        on_wait=report_wait,
        timeout_error=partial(_waited_too_long, source),
    ):
        _held.sources.add(key)
        try:
            yield
        finally:
            _held.sources.discard(key)


def wait_for_rewrite(warehouse: "Warehouse", source: Source) -> None:
    """Wait until no process rewrites the event log of a source."""
    if (warehouse.path_of(""), source.name) in _held.sources:
        return
    records = worker_records(warehouse.location, warehouse.database)
    began = time.monotonic()
    is_reported = False
    while True:
        record = records.read_record(REWRITE, source.name)
        owner = record.owner
        if owner is None or is_free(record):
            return
        waited = time.monotonic() - began
        if waited > MAX_SECONDS:
            raise _waited_too_long(source, owner)
        if not is_reported and waited >= REPORT_SECONDS:
            _log.warning(
                "Waiting for %s, which erases events of source '%s', or replaces its tables.",
                owner,
                source.name,
            )
            is_reported = True
        time.sleep(_POLL_SECONDS)


def report_interruption(warehouse: "Warehouse", source: Source) -> None:
    """Log a warning if an erasure of a source was interrupted, once in this process."""
    if (warehouse.path_of(""), source.name) in _held.sources:
        return
    owners = set(_list_owners(source))
    for operation in list_unfinished(warehouse):
        is_erasure = operation.kind is Kind.ERASE and operation.owner in owners
        if is_erasure and operation.id not in _reported:
            _reported.add(operation.id)
            _log.warning("%s", operation)


def _list_owners(source: Source) -> Iterator[str]:
    """Yield a source and its bases, as owners of tables."""
    yield source.log_table.owner
    if isinstance(source, DerivedSource):
        for base in source.base_sources:
            yield from _list_owners(base)


def _waited_too_long(source: Source, owner: Owner) -> ConflictError:
    return ConflictError(
        f"Gave up after {MAX_SECONDS:,.0f} seconds of waiting for {owner}, which erases events of "
        f"source '{source.name}', or replaces its tables. Retry when it has ended; if you stop it, "
        "run its command again.",
        retriable=True,
    )
