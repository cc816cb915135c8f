"""Delete events from the event log, the content of dead letters, and separate copies of windows."""

from pyspark.sql import functions as F

from tidemark.base.failpoint import pass_fail_point
from tidemark.compute.affected.by_erasure import PLACE
from tidemark.compute.materialize import TempTables
from tidemark.define.definition import Definition
from tidemark.run.erase.search import SearchResult
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import BEGUN
from tidemark.store.warehouse import Warehouse


def delete(log: Log, found: SearchResult, place: TempTables) -> None:
    """Record an erasure and delete its events.

    The tables of rebuilds and side replays are deleted first. So after the deletion of the events,
    no such table was computed from an erased event, even if the process is killed.
    """
    _begin(log.warehouse, found)
    _empty_letters(log, found, place)
    pass_fail_point("letters")
    _delete_events(log, found, place)
    pass_fail_point("erased")


def rewrite(log: Log, found: SearchResult, place: TempTables) -> None:
    """Record the erasure of a derived source, and replace the rows that change.

    The unjoined rows are replaced last. If the process is killed before that, the next search finds
    these rows again.
    """
    _begin(log.warehouse, found)
    _delete_events(log, found, place)
    pass_fail_point("erased")
    _replace_letters(log, found, place)
    pass_fail_point("letters")


def discard_backup(warehouse: Warehouse, definition: Definition) -> None:
    """Discard the backup of an asset's last promotion."""
    state = State(warehouse, definition)
    last = state.last()
    if last.promoted > state.forgotten():
        state.forget(last.promoted)


def _begin(warehouse: Warehouse, found: SearchResult) -> None:
    """Record an erasure, and delete copies of its windows.

    The copies are the tables of rebuilds and side replays, and the backups of promotions.
    """
    erasures.record(warehouse, found.erasure, BEGUN)
    pass_fail_point("erasure")
    for table in found.copies:
        warehouse.drop(table)
    for each in found.counted:
        discard_backup(warehouse, each)
    pass_fail_point("copies")


def _empty_letters(log: Log, found: SearchResult, place: TempTables) -> None:
    """Delete the content of dead letters; keep their position and reason."""
    erasure = found.erasure
    if not erasure.letters:
        return
    table, ranges = log.source.dead_letters_table, erasures.arrival_ranges(erasure.letters)
    rows = log.warehouse.read(table, InRanges("arrival", ranges, instants=False))
    mark = found.letters.withColumn("_empty", F.lit(True))
    marked = rows.join(mark, PLACE, "left")
    kinds = dict(rows.dtypes)
    empty = {
        name: F.when(F.col("_empty").isNull(), F.col(name)).otherwise(F.lit(None).cast(kinds[name]))
        for name in ("bytes", "key", "headers", "correlation_id")
    }
    materialized = place.materialize(marked.withColumns(empty).select(*rows.columns), few=False)
    log.warehouse.replace(materialized, table, erasures.arrival_condition(ranges), erasure.app, 0)


def _delete_events(log: Log, found: SearchResult, place: TempTables) -> None:
    erasure = found.erasure
    table = log.source.log_table
    ranges = erasures.arrival_ranges([*erasure.events, *erasure.added])
    bound = InRanges("arrival", ranges or ((-1, 0),), instants=False)
    staying = log.warehouse.read(table, bound).join(found.events, PLACE, "left_anti")
    if found.gained is not None:
        staying = staying.unionByName(found.gained)
    rows = place.materialize(staying, few=False)
    # Replace by arrival number, because Delta's transaction log records each commit's condition.
    log.warehouse.replace(rows, table, erasures.arrival_condition(ranges), erasure.app, 0)


def _replace_letters(log: Log, found: SearchResult, place: TempTables) -> None:
    """Delete the unjoined rows that a derived source loses, and add those that it gains."""
    erasure = found.erasure
    ranges = erasures.arrival_ranges([*erasure.letters, *erasure.added])
    if not ranges or found.gained_letters is None:
        return
    table, bound = log.source.dead_letters_table, InRanges("arrival", ranges, instants=False)
    staying = log.warehouse.read(table, bound).join(found.letters, PLACE, "left_anti")
    rows = place.materialize(staying.unionByName(found.gained_letters), few=False)
    log.warehouse.replace(rows, table, erasures.arrival_condition(ranges), erasure.app, 0)
