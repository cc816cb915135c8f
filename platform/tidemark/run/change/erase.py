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

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.failpoint import pass_fail_point
from tidemark.base.instants import iso
from tidemark.compute.affected import by_erasure as affected_by_erasure
from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.quality import results
from tidemark.run import runner
from tidemark.store import claims
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.committers import Merge
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import BEGUN, ENDED, VOID, Erasure
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.upkeep.source_lock import lock_source
from tidemark.store.warehouse import SCRATCH, Warehouse

MAX_LISTED_WINDOWS = 1000
"""Maximum number of a sink's windows that are listed; all are counted."""


@dataclass(frozen=True)
class AffectedTable:
    """A table that held data of the events.

    Args:
        rows: number of rows that are deleted or recomputed.
        what: the effect of the erasure on them.
    """

    table: str
    rows: int
    what: str


@dataclass(frozen=True)
class PublishedWindows:
    """Windows that held one of the events and may have been published outside the warehouse.

    Args:
        outlet: the sink to which they were published.
        total: number of windows; `windows` lists the first of them, each with its start and keys.
    """

    asset: str
    outlet: str
    total: int
    windows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ErasureReport:
    """Result of an erasure, or of its dry run.

    Args:
        source: name of the source.
        done: true if the erasure was carried out; false for a dry run.
        id: id of the erasure on record; None if nothing was deleted.
        at: start time in microseconds.
        events: number of events deleted from the log.
        arrivals: number of arrivals that had brought them.
        dead_letters: number of dead letters whose content was deleted.
        unsearched: number of other dead letters with content; a condition on columns can't search
            them.
        resumed: number of earlier, killed erasures that were finished first.
        places: the affected tables.
        sent: published windows, which Tidemark can't delete.
        removed: deleted tables of rebuilds and side replays.
        swept: number of deleted scratch folders that killed processes had left.
        unswept: names of scratch folders that remain, because a live process uses them or they
            can't be removed.
    """

    source: str
    done: bool
    id: str | None
    at: int
    events: int
    arrivals: int
    dead_letters: int
    unsearched: int
    resumed: int = 0
    places: list[AffectedTable] = field(default_factory=list[AffectedTable])
    sent: list[PublishedWindows] = field(default_factory=list[PublishedWindows])
    removed: list[str] = field(default_factory=list[str])
    swept: int = 0
    unswept: list[str] = field(default_factory=list[str])


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
    with nullcontext() if dry_run else lock_source(warehouse, source, on_progress):
        return _erase(log, definitions, where, texts, dry_run, then, on_progress)


def _erase(
    log: Log,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str],
    dry_run: bool,
    then: Callable[[], None] | None,
    on_progress: ProgressCallback,
) -> ErasureReport:
    warehouse, source = log.warehouse, log.source
    last = log.last()
    assert last is not None
    counted, rolled = _find_run_assets(warehouse, source, definitions)
    resumed = 0
    if not dry_run:
        log.recover()
        for left in erasures.find_unfinished(warehouse, source):
            on_progress("finish an interrupted erasure")
            resumed += _finish(log, definitions, left, then, on_progress)
        for each in counted:
            # Then no run still has to process an erased event, and all tables match their
            # definitions.
            on_progress(f"process new arrivals of {each.name}")
            runner.incremental(warehouse, each)
    with temp_tables(warehouse) as place:
        on_progress("search for the events")
        events = place.materialize_frame(affected_by_erasure.find_events(log, last.arrival, where))
        letters = place.materialize_frame(
            affected_by_erasure.find_dead_letters(warehouse, log, last.arrival, texts)
        )
        erasure = Erasure(
            source=source.name,
            through=last.arrival,
            events=_count_by_arrival(events),
            letters=_count_by_arrival(letters),
            windows=_find_affected_windows(log, counted, events, last.arrival),
        )
        nothing = not erasure.events and not erasure.letters
        found = ErasureReport(
            source=source.name,
            done=not dry_run,
            id=None if dry_run or nothing else erasure.id,
            at=erasure.at,
            events=sum(erasure.events.values()),
            arrivals=len(erasure.events),
            dead_letters=sum(erasure.letters.values()),
            unsearched=_count_searchable(log) - sum(erasure.letters.values()),
            resumed=resumed,
            places=_list_affected_tables(warehouse, source, counted, rolled, erasure),
            sent=[
                s
                for d in definitions
                if (s := _find_published(log, d, events, erasure)) is not None
            ],
            removed=_list_removed(warehouse, source, definitions, erasure),
        )
        if dry_run:
            return found
        if not nothing:
            erasures.record(warehouse, erasure, BEGUN)
            pass_fail_point("erasure")
            if erasure.events:
                _drop_copies(warehouse, counted, found.removed)
            pass_fail_point("copies")
            on_progress("delete the events from the event log")
            _empty_letters(log, erasure, letters, place)
            pass_fail_point("letters")
            _delete_events(log, erasure, events, place)
            pass_fail_point("erased")
    if not nothing:
        _finish(log, definitions, erasure, then, on_progress)
    # Sweep last: the engine may continue for a moment with queries of a killed process.
    swept = claims.sweep(warehouse.path(SCRATCH))
    return replace(found, swept=swept.removed, unswept=swept.left)


def list_tables(source: Source, definitions: Sequence[Definition]) -> list[str]:
    """Return the tables that may hold data of a source's events."""
    own = [t for d in definitions if d.source.name == source.name for t in d.tables]
    return [source.log_table, source.dead_letters_table, *dict.fromkeys(own), results.TABLE]


def _find_run_assets(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> tuple[list[Definition], list[Definition]]:
    """Return the assets of a source that have run: first those that count events, then roll-ups."""
    own = [d for d in definitions if d.source.name == source.name]
    existing = [d for d in own if Asset(warehouse, d).state.last().commit_number >= 0]
    counted = [d for d in existing if d.follows is None]
    return counted, [d for d in existing if d.follows is not None and warehouse.exists(d.table)]


def _find_affected_windows(
    log: Log, counted: Sequence[Definition], events: DataFrame, through: int
) -> dict[str, Ranges]:
    found = {
        d.name: affected_by_erasure.find_affected_windows(log, d, events, through) for d in counted
    }
    return {name: ranges for name, ranges in found.items() if ranges is not None}


def _count_by_arrival(places: DataFrame) -> dict[int, int]:
    return {int(r[0]): int(r[1]) for r in places.groupBy("arrival").count().collect()}


def _count_searchable(log: Log) -> int:
    rows = log.warehouse.take(log.source.dead_letters_table, columns=["bytes"])
    return rows.num_rows - rows["bytes"].null_count


def _list_affected_tables(
    warehouse: Warehouse,
    source: Source,
    counted: Sequence[Definition],
    rolled: Sequence[Definition],
    erasure: Erasure,
) -> list[AffectedTable]:
    found = [
        AffectedTable(source.log_table, sum(erasure.events.values()), "deleted"),
        AffectedTable(source.dead_letters_table, sum(erasure.letters.values()), "emptied"),
    ]
    for each in [*counted, *rolled]:
        ranges = erasure.windows.get(each.follows or each.name)
        if ranges is None:
            continue
        for table in each.tables:
            if warehouse.exists(table):
                # A roll-up's windows may start earlier than its base's.
                some = _widen(ranges, each.window.max_extent if each.follows else 0)
                rows = warehouse.take(
                    table, InRanges("window_start", some), columns=["window_start"]
                )
                found.append(AffectedTable(table, rows.num_rows, "recomputed"))
    return [place for place in found if place.rows]


def _widen(ranges: Ranges, reach_: int) -> Ranges:
    return merge_ranges((start - reach_, end) for start, end in ranges) if reach_ else ranges


def _find_published(
    log: Log, definition: Definition, events: DataFrame, erasure: Erasure
) -> PublishedWindows | None:
    if definition.sink is None or not erasure.events:
        return None
    if not log.warehouse.exists(definition.table):
        return None
    rows = affected_by_erasure.find_windows_with_events(log, definition, events, erasure.through)
    keys = F.struct(*(F.col(k) for k in definition.keys)) if definition.keys else F.lit(None)
    some = (
        rows.orderBy("window_start")
        .select(F.unix_micros("window_start"), keys)
        .limit(MAX_LISTED_WINDOWS)
    )
    listed = [
        {"window_start": iso(r[0]), "keys": {} if r[1] is None else r[1].asDict()}
        for r in some.collect()
    ]
    total = len(listed) if len(listed) < MAX_LISTED_WINDOWS else rows.count()
    return PublishedWindows(definition.name, str(definition.sink), total, listed)


def _delete_events(log: Log, erasure: Erasure, events: DataFrame, place: TempTables) -> None:
    """Rewrite the affected arrivals in the log without the erased events."""
    table, ranges = log.source.log_table, erasures.arrival_ranges(erasure.events)
    bound = InRanges("arrival", ranges or ((-1, 0),), instants=False)
    staying = log.warehouse.read(table, bound).join(events, affected_by_erasure.PLACE, "left_anti")
    rows = place.materialize(staying, few=False)
    # Replace by arrival number, because Delta's transaction log records each commit's condition.
    log.warehouse.replace(rows, table, _arrival_condition(ranges), erasure.app, 0)


def _empty_letters(log: Log, erasure: Erasure, letters: DataFrame, place: TempTables) -> None:
    """Delete the content of dead letters; keep their position and reason."""
    if not erasure.letters:
        return
    table, ranges = log.source.dead_letters_table, erasures.arrival_ranges(erasure.letters)
    rows = log.warehouse.read(table, InRanges("arrival", ranges, instants=False))
    mark = letters.withColumn("_empty", F.lit(True))
    marked = rows.join(mark, affected_by_erasure.PLACE, "left")
    kinds = dict(rows.dtypes)
    empty = {
        name: F.when(F.col("_empty").isNull(), F.col(name)).otherwise(F.lit(None).cast(kinds[name]))
        for name in ("bytes", "key", "headers", "correlation_id")
    }
    materialized = place.materialize(marked.withColumns(empty).select(*rows.columns), few=False)
    log.warehouse.replace(materialized, table, _arrival_condition(ranges), erasure.app, 0)


def _arrival_condition(ranges: Ranges) -> str:
    each = [f"(arrival >= {start} AND arrival < {end})" for start, end in ranges or ((-1, 0),)]
    return f"({' OR '.join(each)})"


def _finish(
    log: Log,
    definitions: Sequence[Definition],
    erasure: Erasure,
    then: Callable[[], None] | None,
    on_progress: ProgressCallback,
) -> bool:
    """Recompute everything that held one of the events; return whether any event was deleted."""
    warehouse = log.warehouse
    if warehouse.transaction(log.source.log_table, erasure.app) < 0:
        erasures.record(warehouse, erasure, VOID)
        return False
    own = [d for d in definitions if d.source.name == log.source.name]
    known = {d.name: d for d in own if d.follows is None}
    for name, ranges in erasure.windows.items():
        exists = name in known and State(warehouse, known[name]).table_id() is not None
        if exists:
            on_progress(f"recompute {name}")
            _recompute(warehouse, known[name], ranges)
            pass_fail_point("counted")
        else:
            _drop_remains(warehouse, name, erasure, defined=name in known)
        for roll in (r for r in own if exists and r.follows == name and warehouse.exists(r.table)):
            on_progress(f"recompute {roll.name}")
            runner.incremental(warehouse, roll)
            _remove_old_values(warehouse, roll, ranges)
    if then is not None:
        then()
    erasures.record(warehouse, erasure, ENDED)
    return True


def _drop_remains(warehouse: Warehouse, name: str, erasure: Erasure, *, defined: bool) -> None:
    """Delete all remains of an asset that was dropped since the erasure began.

    Dropping it deleted its events. If it is still defined, its next run counts again from the log.

    Raises:
        DataError: its tables exist, but there is no definition to recompute them with.
    """
    # The state table of a defined asset may be that of a run that has just begun.
    left = [
        table
        for table in _list_owned(warehouse, name)
        if not table.side and not (defined and table.role is Role.STATE)
    ]
    if left and not defined:
        raise DataError(
            f"An erasure of '{erasure.source}' was killed before the windows of '{name}' were "
            f"recomputed, and '{name}' is no longer defined. Define it again, or delete its tables "
            f"({', '.join(left)})."
        )
    for table in left:
        # An interrupted drop left it behind.
        warehouse.drop(table)


def _recompute(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    # After an interruption, a promotion may have kept the old windows as a backup.
    _drop_backup(warehouse, definition)
    if State(warehouse, definition).last().commit_number < 0:
        runner.backfill(warehouse, definition)
    else:
        runner.recompute_erased(warehouse, definition, ranges)
    _remove_old_values(warehouse, definition, ranges)


def _drop_copies(
    warehouse: Warehouse, counted: Sequence[Definition], tables: Sequence[str]
) -> None:
    """Delete the tables of rebuilds and side replays, and the backups of promotions.

    They go before the events leave the log, so that what is made after that has none of the events.
    """
    for table in tables:
        warehouse.drop(table)
    for each in counted:
        _drop_backup(warehouse, each)


def _drop_backup(warehouse: Warehouse, definition: Definition) -> None:
    state = State(warehouse, definition)
    last = state.last()
    if last.promoted > state.forgotten():
        state.forget(last.promoted)


def _remove_old_values(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    """Delete the published rows of windows that are now quarantined, and silence check results.

    Only results from before the recomputation are silenced: they may show values of erased events.
    """
    asset = Asset(warehouse, definition)
    newest = asset.published_commit_number()
    if warehouse.exists(definition.quarantine_table):
        by = definition.by_window
        quarantined = warehouse.take(definition.quarantine_table, columns=[*by, "commit_number"])
        # A quarantined window keeps its last good row, which was computed with the erased events.
        earlier = Merge(on=by, delete="t.commit_number < s.commit_number", update=None, insert=None)
        if quarantined.num_rows:
            warehouse.merge(
                _filter_by_ranges(quarantined, ranges, definition), definition.table, earlier
            )
    results.delete_observations(asset, ranges, newest)


def _filter_by_ranges(quarantined: pa.Table, ranges: Ranges, definition: Definition) -> pa.Table:
    """Return the quarantined windows that start in one of the ranges.

    Return all of them if there is no range, or for a roll-up.
    """
    if not ranges or definition.follows is not None:
        return quarantined
    return quarantined.filter(InRanges("window_start", ranges).expression())


def _list_removed(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition], erasure: Erasure
) -> list[str]:
    """Return the tables that the erasure deletes."""
    own = [d.name for d in definitions if d.source.name == source.name and d.follows is None]
    return [t for name in own for t in _list_side_tables(warehouse, name)] if erasure.events else []


def _list_side_tables(warehouse: Warehouse, asset: str) -> list[TableName]:
    """Return the tables of an asset's rebuilds and side replays, the states first."""
    return [table for table in _list_owned(warehouse, asset) if table.side]


def _list_owned(warehouse: Warehouse, asset: str) -> list[TableName]:
    """Return the tables that belong to an asset, in the order to drop them: states first."""
    found = [t for t in own_tables(warehouse) if t.owner == tables_of.asset(asset)]
    return sorted(found, key=lambda table: (table.role is not Role.STATE, table))
