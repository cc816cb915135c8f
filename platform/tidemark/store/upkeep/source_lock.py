"""Let an erasure work alone on its source: it waits for earlier runs, and new runs wait for it.

Runs share a source; an erasure locks it. Both use lock files on this machine (`store.lock_files`).
A lock ends with the process that holds it, however that process exits.

| file | a run | an erasure |
| --- | --- | --- |
| `.<source>_erasure.lock` | shares it for an instant when it begins | holds it until it ends |
| `.<source>_runs.lock` | shares it until it ends | holds it once the earlier runs have ended |

The first file keeps new runs from overtaking an erasure that waits. It also holds a note about the
erasure. An interrupted erasure leaves the note behind, and later runs report it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tidemark.base.errors import ConflictError
from tidemark.base.files import locks
from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.store.lock_files import lock_file, open_lock_file, read_note, write_note
from tidemark.store.upkeep import erasures
from tidemark.store.warehouse import Warehouse

_P = ParamSpec("_P")
_R = TypeVar("_R")

MAX_ERASURE_SECONDS = 3600.0
"""Seconds for which a run, or another erasure, waits for an erasure before it fails."""

MAX_RUN_SECONDS = 600.0
"""Seconds for which an erasure waits for runs before it fails. New runs wait in the meantime."""

REPORT_SECONDS = 3.0
"""Seconds of waiting after which a run logs that it waits."""

_POLL_SECONDS = 0.1

_log = logging.getLogger(__name__)
_reported = set[tuple[Path, str]]()


class _Held(threading.local):
    """The sources that this thread shares or has locked, as paths of their `_runs.lock` files."""

    def __init__(self) -> None:
        self.paths = set[Path]()


_held = _Held()


@contextmanager
def share_source(warehouse: Warehouse, source: Source) -> Iterator[None]:
    """Wait until no erasure of a source is in progress; new ones wait until the `with` block ends.

    Nothing happens in a thread that shares the source, or has locked it, already.
    """
    path = _path(warehouse, source)
    if path in _held.paths:
        yield
        return
    runs = _open(warehouse, source, "runs", writable=False)
    try:
        # An erasure that was just killed may still hold the lock on `runs` for an instant.
        _wait_for_erasure(warehouse, source, then=lambda: locks.share(runs))
        _held.paths.add(path)
        yield
    finally:
        _held.paths.discard(path)
        os.close(runs)


def shares_source(
    function: Callable[Concatenate[Warehouse, Definition, _P], _R],
) -> Callable[Concatenate[Warehouse, Definition, _P], _R]:
    """Decorate a function that uses an asset's tables: each call runs inside `share_source`."""

    @wraps(function)
    def sharing(
        warehouse: Warehouse, transform: Definition, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        with share_source(warehouse, transform.source):
            return function(warehouse, transform, *args, **kwargs)

    return sharing


def wait_for_erasure(warehouse: Warehouse, source: Source) -> None:
    _wait_for_erasure(warehouse, source, then=lambda: True)


@contextmanager
def lock_source(
    warehouse: Warehouse,
    source: Source,
    on_progress: ProgressCallback = ignore_progress,
    *,
    erased: Source | None = None,
) -> Iterator[None]:
    """Wait until other erasures and all runs of a source have ended, then lock the source.

    New runs and erasures wait until the `with` block ends.

    Args:
        erased: the source that the user erases from, if `source` is derived from it.
    """
    path, erased = _path(warehouse, source), erased or source
    erasure, runs = (_open(warehouse, source, name, writable=True) for name in ("erasure", "runs"))
    try:
        _wait(
            lambda: locks.try_take(erasure),
            lambda: on_progress(f"wait for the erasure of {source.name}{_details(erasure)}"),
            MAX_ERASURE_SECONDS,
            lambda: _still_erasing(source, erasure),
        )
        started = f"process {os.getpid()}, started at {iso(time.time_ns() // 1000)}"
        write_note(warehouse, erasure, f"`tidemark erase {erased.name}`, {started}")
        try:
            _wait(
                lambda: locks.try_take(runs),
                lambda: on_progress(f"wait for the runs of {source.name}"),
                MAX_RUN_SECONDS,
                lambda: _still_running(source),
            )
            _held.paths.add(path)
            yield
        finally:
            if not any(erasures.find_unfinished(warehouse, each) for each in (source, erased)):
                write_note(warehouse, erasure, "")
    finally:
        _held.paths.discard(path)
        os.close(runs)
        os.close(erasure)


def _wait_for_erasure(warehouse: Warehouse, source: Source, then: Callable[[], bool]) -> None:
    erasure = _open(warehouse, source, "erasure", writable=False)
    try:
        _wait(
            lambda: locks.share(erasure) and then(),
            lambda: _log.warning(
                "Waiting for the erasure of source '%s'%s.", source.name, _details(erasure)
            ),
            MAX_ERASURE_SECONDS,
            lambda: _still_erasing(source, erasure),
            REPORT_SECONDS,
        )
        left = _path(warehouse, source), read_note(erasure)
        if left[1] and left not in _reported:
            _reported.add(left)
            _log.warning(
                "The erasure of source '%s'%s was interrupted. Run the same command again: until "
                "then, tables may contain erased events.",
                source.name,
                _details(erasure),
            )
    finally:
        os.close(erasure)


def _wait(
    attempt: Callable[[], bool],
    report: Callable[[], None],
    limit: float,
    describe_failure: Callable[[], str],
    report_after: float = 0,
) -> None:
    """Repeat an attempt until it succeeds, and report once if that takes long.

    Args:
        report: is called once, after `report_after` seconds of waiting.
        limit: the seconds of waiting after which `ConflictError` is raised.
        describe_failure: returns the message of that error.
    """
    began, reported = time.monotonic(), False
    while not attempt():
        waited = time.monotonic() - began
        if waited > limit:
            raise ConflictError(describe_failure(), retriable=True)
        if not reported and waited >= report_after:
            report()
            reported = True
        time.sleep(_POLL_SECONDS)


def _details(erasure: int) -> str:
    note = read_note(erasure)
    return f" ({note})" if note else ""


def _still_erasing(source: Source, erasure: int) -> str:
    return (
        f"Gave up after {MAX_ERASURE_SECONDS:,.0f} seconds of waiting for the erasure of source "
        f"'{source.name}'{_details(erasure)}. Retry when it has ended; if you stop it, run the "
        "same command again."
    )


def _still_running(source: Source) -> str:
    return (
        f"Nothing was erased: runs of the assets of '{source.name}' did not end within "
        f"{MAX_RUN_SECONDS:,.0f} seconds. Wait until the backfill or rebuild ends, or stop it, and "
        "retry."
    )


def _path(warehouse: Warehouse, source: Source) -> Path:
    return lock_file(warehouse.location, warehouse.database, _name(source, "runs"))


def _open(warehouse: Warehouse, source: Source, kind: str, *, writable: bool) -> int:
    return open_lock_file(warehouse, _name(source, kind), writable=writable)


def _name(source: Source, kind: str) -> str:
    return f".{source.name}_{kind}.lock"
