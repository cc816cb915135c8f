"""Erasure: delete a person's events from a source's event log, and everything computed from them.

The events leave the log in one commit. Every window that held one is then recomputed from the log
and replaced, as in a backfill, so batch and stream still agree. The other runs of the source wait
until the erasure has ended (`store.upkeep.source_lock`). Nothing that Tidemark records about an
erasure reveals the events. Neither the condition nor a value is in a commit, in the record of
erasures (`store.upkeep.erasures`) or in a log file.

| a process that is killed | leaves |
| --- | --- |
| before the log's commit | nothing erased, perhaps no tables of rebuilds: request it again |
| after it | windows to recompute, which the source's next erasure of any kind does |
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemark.base.errors import DataError
from tidemark.compute.affected import by_erasure as affected_by_erasure
from tidemark.compute.materialize import temp_tables
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.quality import results
from tidemark.run import runner
from tidemark.run.erase import recovery
from tidemark.run.erase.deletion import delete
from tidemark.run.erase.report import ErasureReport, build_report
from tidemark.run.erase.search import find_counted, search
from tidemark.store import claims
from tidemark.store.event_log.log import Log
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.source_lock import lock_source
from tidemark.store.warehouse import SCRATCH, Warehouse


def erase(
    warehouse: Warehouse,
    source: Source,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str] = (),
    *,
    dry_run: bool = False,
    then: Callable[[], None] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> ErasureReport:
    """Delete the events that match a condition, and everything that was computed from them.

    The caller must ensure that no ingest runs in the meantime (`lock_ingest`). A dry run needs
    neither that nor the source for itself.

    Args:
        definitions: all assets of the source.
        where: SQL condition on the columns of the log.
        texts: delete the content of dead letters that contain one of these texts, too.
        dry_run: only report what would change.
        then: called before the erasure is recorded as finished; may be called twice.
        on_progress: receives a progress message at each step.

    Raises:
        DefinitionError: the condition is invalid, or an asset's tables are incompatible with its
            definition.
        DataError: the source was never ingested.
        ConflictError: the source's other runs did not end in time.
    """
    log = Log(warehouse, source)
    if not warehouse.exists(source.timeline_table) or (last := log.last()) is None:
        raise DataError(f"Source '{source.name}' has no arrivals yet: there is nothing to erase.")
    # Check the condition before other runs have to wait.
    affected_by_erasure.find_events(log, last.arrival, where)
    if dry_run:
        with temp_tables(warehouse) as place:
            found = search(log, definitions, where, texts, place)
            return build_report(log, definitions, found, dry_run=True, resumed=0)
    with lock_source(warehouse, source, on_progress):
        return _erase(log, definitions, where, texts, then, on_progress)


def list_tables(source: Source, definitions: Sequence[Definition]) -> list[str]:
    """Return the tables that may hold data of a source's events."""
    own = [t for d in definitions if d.source.name == source.name for t in d.tables]
    return [source.log_table, source.dead_letters_table, *dict.fromkeys(own), results.TABLE]


def _erase(
    log: Log,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str],
    then: Callable[[], None] | None,
    on_progress: ProgressCallback,
) -> ErasureReport:
    warehouse, resumed = log.warehouse, 0
    log.recover()
    for left in erasures.find_unfinished(warehouse, log.source):
        on_progress("finish an interrupted erasure")
        resumed += recovery.finish(log, definitions, left, then, on_progress)
    for each in find_counted(warehouse, log.source, definitions):
        # Then no run still has to process an erased event, and all tables match their definitions.
        on_progress(f"process new arrivals of {each.name}")
        runner.incremental(warehouse, each)
    with temp_tables(warehouse) as place:
        on_progress("search for the events")
        found = search(log, definitions, where, texts, place)
        report = build_report(log, definitions, found, dry_run=False, resumed=resumed)
        if not found.is_empty:
            on_progress("delete the events from the event log")
            delete(log, found, place)
    if not found.is_empty:
        recovery.finish(log, definitions, found.erasure, then, on_progress)
    # Sweep last: the engine may continue for a moment with queries of a killed process.
    swept = claims.sweep(warehouse.path(SCRATCH))
    return replace(report, swept=swept.removed, unswept=swept.left)
