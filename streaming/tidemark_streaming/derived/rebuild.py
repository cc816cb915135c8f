"""Rebuild a derived source next to its published tables, and promote the rebuilt tables.

A derived source is stale if its definition has changed, or if a base has another history than the
one that the source has read (`store.lineage`). `rebuild` computes it again from its bases, into
side tables (`<name>__rebuild_log`, …). `promote` replaces the published tables by these. Everything
that reads the source is stale afterwards, because all arrivals of the source are new.

`promote` deletes the timeline first and creates it last, as a recorded operation
(`store.operations`). If a process is killed in between, ingests and runs of the source are refused
until `promote` is repeated.

A promotion whose process was paused for so long that another process has repeated it stops before
its next step. Its commits are fenced (`store.event_log.fence`), like those of an ingest that it
interrupted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.base.failpoint import pass_fail_point
from tidemark.define.derived.asof_join import AsOfSource
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.tables import REBUILD, TableName
from tidemark.engine.process import ignore_progress
from tidemark.run.table_copy import replace_rows
from tidemark.store import operations
from tidemark.store.committers.values import Vouches
from tidemark.store.event_log.fence import Fence
from tidemark.store.event_log.log import Log
from tidemark.store.graph import Graph
from tidemark.store.lineage import Lineage, WarehouseReader
from tidemark.store.log_rewrite import hold_rewrite
from tidemark.store.operations import Kind
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.dropping import drop_event_log
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.hold import Hold
from tidemark_streaming.derived.connector import DerivedConnector
from tidemark_streaming.ingest.ingest import Ingested, ingest
from tidemark_streaming.ingest.ingest_record import lock_ingest

_APP = "promotion"
"""The application id of the commits that replace published tables by rebuilt ones."""


@dataclass(frozen=True)
class RebuiltSource:
    """The tables that a rebuild of a derived source has computed, before their promotion.

    Args:
        tables: the names of the rebuilt tables.
        arrivals: the number of arrivals that have been computed.
        rows: the number of rows in the rebuilt event log.
    """

    source: str
    tables: list[str]
    arrivals: int
    rows: int


@dataclass(frozen=True)
class PromotedSource:
    """A derived source whose rebuilt tables were promoted.

    Args:
        arrivals: the number of its arrivals.
        stale: the names of everything that reads it, which is stale until it is recomputed.
    """

    source: str
    arrivals: int
    stale: list[str]


def no_backup(source: DerivedSource) -> DefinitionError:
    """Return the error for a request that needs a backup, which derived sources do not have."""
    return DefinitionError(
        f"'{source.name}' is a derived source, so there is no backup of its tables. To return to "
        "an earlier definition, restore it in the code, then rebuild and promote."
    )


def rebuild_source(warehouse: Warehouse, source: DerivedSource) -> Iterator[Ingested]:
    """Compute a derived source into side tables, and yield after each commit.

    If the side tables were computed with the present definition from the present bases, only the
    arrivals since then are computed.
    """
    side = source.with_side_tables(REBUILD)
    if Lineage(WarehouseReader(warehouse)).of_source(side) is not None:
        drop_event_log(warehouse, side)
    yield from ingest(warehouse, DerivedConnector(side), batch=None)


def describe_rebuilt(warehouse: Warehouse, source: DerivedSource) -> RebuiltSource:
    side = source.with_side_tables(REBUILD)
    last = (
        Log(warehouse, side).find_last_arrival()
        if warehouse.has_table(side.timeline_table)
        else None
    )
    rows = warehouse.max_row_count(side.log_table) if warehouse.has_table(side.log_table) else 0
    return RebuiltSource(
        source=source.name,
        tables=[table for table in side.own_tables if warehouse.has_table(table)],
        arrivals=0 if last is None else last.arrival + 1,
        rows=rows,
    )


def promote_source(warehouse: Warehouse, source: DerivedSource) -> PromotedSource:
    """Replace the tables of a derived source by the rebuilt ones.

    New runs of the source's assets wait until the tables are replaced.

    Raises:
        ConflictError: another process has taken over the source while this one was paused.
        DataError: nothing was rebuilt with the present definition.
    """
    side = source.with_side_tables(REBUILD)
    _demand_rebuilt(warehouse, source, side)
    for _ in ingest(warehouse, DerivedConnector(side), batch=None):
        pass
    with (
        lock_ingest(warehouse, source) as lock,
        hold_rewrite(warehouse, source, ignore_progress),
    ):
        # An erasure may have deleted the rebuilt tables in the meantime.
        _demand_rebuilt(warehouse, source, side)
        with operations.record_operation(warehouse, Kind.PROMOTE, source.log_table.owner):
            arrivals = _replace_tables(warehouse, side, source, lock)
        # A kill from here on leaves only side tables behind, which the next rebuild uses or
        # deletes.
        _demand_lock(lock)
        drop_event_log(warehouse, side)
    below = Graph.of_folder(warehouse.path_of("").rstrip("/")).nodes_below(source.log_table.owner)
    return PromotedSource(source.name, arrivals, [node.name for node in below])


def discard_rebuilt(warehouse: Warehouse, source: DerivedSource) -> list[str]:
    """Delete rebuilt tables that were not promoted. Return their names.

    Raises:
        DataError: an unfinished promotion still needs the rebuilt tables.
    """
    operations.check_unfinished(warehouse, [source.log_table.owner])
    return drop_event_log(warehouse, source.with_side_tables(REBUILD))


def _demand_rebuilt(warehouse: Warehouse, source: DerivedSource, side: DerivedSource) -> None:
    if not warehouse.has_table(side.timeline_table) or (
        Lineage(WarehouseReader(warehouse)).of_source(side) is not None
    ):
        raise DataError(
            f"There is nothing to promote: '{source.name}' was not rebuilt with the definition in "
            f"the code and from its present bases. Run `tidemark rebuild {source.name}` first."
        )


def _replace_tables(
    warehouse: Warehouse, side: DerivedSource, source: DerivedSource, lock: Hold
) -> int:
    """Replace the published tables of a source, the timeline last. Return the number of arrivals.

    Repeating the steps has the same result.
    """
    pass_fail_point("promoted_begun")
    if warehouse.has_table(source.timeline_table):
        # An ingest that was paused must not append to the new tables.
        Log(warehouse, source).take_over()
    log_number = _fence_off(warehouse, side.log_table, source.log_table)
    letters_number = _fence_off(warehouse, side.dead_letters_table, source.dead_letters_table)
    _demand_lock(lock)
    warehouse.drop_table(source.timeline_table)
    if isinstance(source, AsOfSource):
        # The next ingest writes it again if it saves time.
        warehouse.drop_table(source.versions_table)
    pass_fail_point("promoted_log")
    _demand_lock(lock)
    superseded = erasures.superseding_record(warehouse, source)
    _replace_rows(warehouse, side.log_table, source.log_table, log_number, superseded)
    pass_fail_point("promoted_rows")
    _demand_lock(lock)
    letters = source.dead_letters_table
    _replace_rows(warehouse, side.dead_letters_table, letters, letters_number, superseded)
    pass_fail_point("promoted_timeline")
    _demand_lock(lock)
    vouches = Log(warehouse, source).vouched_versions(Log(warehouse, side).find_last_arrival())
    # The timeline is a new table, so the number only has to be higher than that of an earlier
    # promotion which continues now.
    timeline = source.timeline_table
    arrivals = _replace_rows(warehouse, side.timeline_table, timeline, log_number, vouches)
    pass_fail_point("promoted_end")
    _demand_lock(lock)
    return arrivals


def _demand_lock(lock: Hold) -> None:
    """Raise `ConflictError` if another process has taken over the source since the lock was taken.

    It could do so while this process was paused.
    """
    if not lock.renew_lease():
        raise _taken_over_error(lock.name)


def _taken_over_error(source: str) -> ConflictError:
    return ConflictError(
        f"Another process has taken over '{source}', so this promotion stops. Check with "
        "`tidemark status` whether it was completed; if not, run it again."
    )


def _fence_off(warehouse: Warehouse, rebuilt: TableName, published: TableName) -> int:
    """Refuse the commits of earlier promotions to a table, which is created if it does not exist.

    Returns:
        The number of this promotion's commit to the table.
    """
    warehouse.ensure_table(published, warehouse.read_schema(rebuilt).empty_table())
    fence = Fence(warehouse, published, _APP)
    fence.fence_off()
    return fence.take_number()


def _replace_rows(
    warehouse: Warehouse,
    rebuilt: TableName,
    published: TableName,
    number: int,
    vouches: Vouches,
) -> int:
    """Replace all rows of a table by those of a rebuilt one. Return the number of rows.

    Args:
        number: the number of the commit, from `_fence_off`.
    """
    copied = rebuilt, warehouse.newest_version(rebuilt)
    count = replace_rows(warehouse, published, copied, (_APP, number), vouches=vouches)
    if count is None:
        raise _taken_over_error(published.owner.partition(" ")[2])
    return count
