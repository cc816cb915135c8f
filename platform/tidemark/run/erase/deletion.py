"""Delete events from the event log, the content of dead letters, and separate copies of windows."""

from pyspark.sql import functions as F

from tidemark.base.failpoint import pass_fail_point
from tidemark.compute.affected.by_erasure import PLACE
from tidemark.compute.materialize import TempTables
from tidemark.define.definition import Definition
from tidemark.run.erase.search import SearchResult
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.ranges import Ranges
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import BEGUN
from tidemark.store.warehouse import Warehouse


def delete(log: Log, found: SearchResult, place: TempTables) -> None:
    """Record an erasure and delete its events.

    Copies go before the events leave the log. So a copy that is made after an interruption has none
    of the events.
    """
    erasures.record(log.warehouse, found.erasure, BEGUN)
    pass_fail_point("erasure")
    _delete_copies(log.warehouse, found)
    pass_fail_point("copies")
    _empty_letters(log, found, place)
    pass_fail_point("letters")
    _delete_events(log, found, place)
    pass_fail_point("erased")


def discard_backup(warehouse: Warehouse, definition: Definition) -> None:
    """Discard the backup of an asset's last promotion."""
    state = State(warehouse, definition)
    last = state.last()
    if last.promoted > state.forgotten():
        state.forget(last.promoted)


def _delete_copies(warehouse: Warehouse, found: SearchResult) -> None:
    if not found.erasure.events:
        return
    for table in found.copies:
        warehouse.drop(table)
    for each in found.counted:
        discard_backup(warehouse, each)


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
    log.warehouse.replace(materialized, table, _arrival_condition(ranges), erasure.app, 0)


def _delete_events(log: Log, found: SearchResult, place: TempTables) -> None:
    """Rewrite the affected arrivals in the log without the erased events."""
    erasure = found.erasure
    table, ranges = log.source.log_table, erasures.arrival_ranges(erasure.events)
    bound = InRanges("arrival", ranges or ((-1, 0),), instants=False)
    staying = log.warehouse.read(table, bound).join(found.events, PLACE, "left_anti")
    rows = place.materialize(staying, few=False)
    # Replace by arrival number, because Delta's transaction log records each commit's condition.
    log.warehouse.replace(rows, table, _arrival_condition(ranges), erasure.app, 0)


def _arrival_condition(ranges: Ranges) -> str:
    each = [f"(arrival >= {start} AND arrival < {end})" for start, end in ranges or ((-1, 0),)]
    return f"({' OR '.join(each)})"
