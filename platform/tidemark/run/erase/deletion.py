"""Delete events from the event log, the content of dead letters, and separate copies of windows.

After the deletion from the event log, the assets of the source are fenced. Runs that have read the
events before, on any machine, can't commit any more (`store.epoch`).
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.errors import ConflictError
from tidemark.base.failpoint import pass_fail_point
from tidemark.compute.affected.by_erasure import PLACE
from tidemark.compute.materialize import TempTables
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, PARITIES, Role, TableName
from tidemark.run import swap
from tidemark.run.erase.search import SearchResult, list_copies
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.kinds import TableSwap
from tidemark.store.commits.ranges import Ranges
from tidemark.store.epoch import epoch_app
from tidemark.store.event_log.log import Log
from tidemark.store.graph import Graph
from tidemark.store.integrity import vouching
from tidemark.store.rows import Rows
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import BEGUN
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse


def delete_erased_rows(log: Log, search_result: SearchResult, temp_tables: TempTables) -> None:
    """Record an erasure and delete its events.

    Copies of windows are deleted first. Otherwise, if the process is killed after the deletion of
    the events, a user could promote a copy that has windows with erased events.
    """
    _begin_erasure(log, search_result)
    _empty_letters(log, search_result, temp_tables)
    pass_fail_point("letters")
    _replace_events(log, search_result, temp_tables)
    pass_fail_point("erased")


def replace_changed_rows(log: Log, search_result: SearchResult, temp_tables: TempTables) -> None:
    """Record the erasure of a derived source, and replace the rows that change.

    The unjoined rows are replaced last. If the process is killed before that, the next search finds
    these rows again.
    """
    _begin_erasure(log, search_result)
    _replace_events(log, search_result, temp_tables)
    pass_fail_point("erased")
    _replace_letters(log, search_result, temp_tables)
    pass_fail_point("letters")


def fence_assets(warehouse: Warehouse, source: Source) -> None:
    """Refuse the later commits of all runs that may have read events that are deleted now.

    The module `store.epoch` explains why the states come first, and why tables are listed twice.
    """
    epochs = dict[str, int]()
    states = [table for table in _list_tables_of_assets(warehouse, source) if _is_state(table)]
    for state in states:
        head = warehouse.find_head(state)
        if head is not None:
            app = epoch_app(head.table_id)
            epochs[app] = max(warehouse.transaction_version(state, app), 0) + 1
    for state in states:
        _append_fence(warehouse, state, epochs)
    tables = _list_tables_of_assets(warehouse, source)
    tables += [CHECKS, PARITIES]
    for table in tables:
        if not _is_state(table):
            _append_fence(warehouse, table, epochs)


def remove_copies(warehouse: Warehouse, source: Source, definitions: Sequence[Definition]) -> None:
    """Delete the copies of windows: tables of rebuilds and side replays, and backups of promotions.

    Runs that are in progress can't add to copies any more, and can't promote any.

    Args:
        definitions: the assets of the source that may have run.
    """
    fence_assets(warehouse, source)
    for definition in definitions:
        asset = Asset(warehouse, definition)
        last = asset.state.read_last_commit()
        if isinstance(last, TableSwap) and asset.published_commit_number() < last.commit_number:
            # It still needs the rebuilt tables.
            swap.finish_swap(asset, last)
        if last.promoted > asset.state.newest_forgotten_backup():
            asset.state.forget_backup(last.promoted)
    for table in list_copies(warehouse, source):
        if table.role in (Role.STATE, Role.TIMELINE):
            warehouse.drop_table(table)
    # After that, no process can fill further tables of a copy.
    for table in list_copies(warehouse, source):
        warehouse.drop_table(table)


def _is_state(table: TableName) -> bool:
    return table.role is Role.STATE


def _list_tables_of_assets(warehouse: Warehouse, source: Source) -> list[TableName]:
    """Return the tables of the assets that read the event log of a source."""
    readers = Graph(own_tables(warehouse)).direct_readers(source.log_table.owner)
    tables = list[TableName]()
    for node in readers:
        if node.is_asset:
            tables += node.tables
    return tables


def count_erasure(log: Log) -> None:
    """Count one more erasure of an event log, without a deletion."""
    no_rows = log.warehouse.read_schema(log.source.log_table).empty_table()
    _, erasures_so_far = log.read_epoch()
    log.warehouse.append_rows(
        no_rows, log.source.log_table, vouching.ERASURES_APP, erasures_so_far + 1
    )


def _append_fence(warehouse: Warehouse, table: str, epochs: Mapping[str, int]) -> None:
    if epochs and warehouse.has_table(table):
        no_rows = warehouse.read_schema(table).empty_table()
        warehouse.append_rows(no_rows, table, vouches=epochs)


def _begin_erasure(log: Log, search_result: SearchResult) -> None:
    """Record an erasure, and delete copies of its windows."""
    erasures.record_phase(log.warehouse, search_result.erasure, BEGUN)
    pass_fail_point("erasure")
    if search_result.erasure.changes_events:
        remove_copies(log.warehouse, log.source, search_result.windowed_assets)
    pass_fail_point("copies")


def _empty_letters(log: Log, search_result: SearchResult, temp_tables: TempTables) -> None:
    """Delete the content of dead letters; keep their position and reason."""
    erasure = search_result.erasure
    if not erasure.letters:
        return
    table = log.source.dead_letters_table
    ranges = erasures.arrival_ranges(erasure.letters)
    rows = log.warehouse.read_frame(table, InRanges("arrival", ranges, instants=False))
    erased_letters = search_result.letters.withColumn("_empty", F.lit(True))
    letters = rows.join(erased_letters, PLACE, "left")
    column_types = dict(rows.dtypes)
    emptied_columns = dict[str, Column]()
    is_kept = F.col("_empty").isNull()
    for name in ("bytes", "key", "headers", "correlation_id"):
        nothing = F.lit(None).cast(column_types[name])
        emptied_columns[name] = F.when(is_kept, F.col(name)).otherwise(nothing)
    letters = letters.withColumns(emptied_columns).select(rows.columns)
    materialized = temp_tables.materialize(letters, few=False)
    _replace_arrivals(log, table, materialized, ranges, search_result)


def _replace_events(log: Log, search_result: SearchResult, temp_tables: TempTables) -> None:
    erasure = search_result.erasure
    table = log.source.log_table
    ranges = erasures.arrival_ranges(chain(erasure.events, erasure.added))
    in_arrivals = InRanges("arrival", ranges or ((-1, 0),), instants=False)
    events = log.warehouse.read_frame(table, in_arrivals)
    remaining_events = events.join(search_result.events, PLACE, "left_anti")
    if search_result.gained is not None:
        remaining_events = remaining_events.unionByName(search_result.gained)
    rows = temp_tables.materialize(remaining_events, few=False)
    # Replace by arrival number, because Delta's transaction log records each commit's condition.
    _replace_arrivals(log, table, rows, ranges, search_result)


def _replace_letters(log: Log, search_result: SearchResult, temp_tables: TempTables) -> None:
    """Delete the unjoined rows that a derived source loses, and add those that it gains."""
    erasure = search_result.erasure
    ranges = erasures.arrival_ranges(chain(erasure.letters, erasure.added))
    if not ranges or search_result.gained_letters is None:
        return
    table = log.source.dead_letters_table
    letters = log.warehouse.read_frame(table, InRanges("arrival", ranges, instants=False))
    letters = letters.join(search_result.letters, PLACE, "left_anti")
    letters = letters.unionByName(search_result.gained_letters)
    rows = temp_tables.materialize(letters, few=False)
    _replace_arrivals(log, table, rows, ranges, search_result)


def _replace_arrivals(
    log: Log, table: str, rows: Rows, ranges: Ranges, search_result: SearchResult
) -> None:
    """Replace the rows of some arrivals, unless another erasure has changed the table.

    Raises:
        ConflictError: another erasure has deleted events since the search. Its events are in
            `rows`.
    """
    erasure = search_result.erasure
    replaced = log.warehouse.replace_rows(
        rows,
        table,
        erasures.arrival_condition(ranges),
        vouching.ERASURES_APP,
        search_result.log_erasures + 1,
        vouches={erasure.commit_app: 0},
    )
    if replaced is None:
        raise ConflictError(
            f"The erasure of '{erasure.source}' has stopped, because another erasure deleted "
            "events of it at the same time. Run the command again."
        )
