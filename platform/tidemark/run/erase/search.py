"""Search for the events and dead letters to erase, and for everything computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError, summarize_error
from tidemark.compute.affected import by_erasure as affected_by_erasure
from tidemark.compute.affected.by_erasure import PLACE
from tidemark.compute.derived.lost_rows import ChangedRows, find_changed_rows
from tidemark.compute.derived.rows import read_steps
from tidemark.compute.materialize import TempTables
from tidemark.compute.rollups import find_holding_ranges
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import FIRST
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName
from tidemark.engine.queries.planning import Planning
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.ranges import Ranges
from tidemark.store.event_log.log import Log
from tidemark.store.graph import Graph
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import Erasure
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class SearchResult:
    """The events and dead letters to erase, and everything that was computed from them.

    Args:
        erasure: the erasure to record.
        events, letters: `arrival` and `position` of the events and dead letters.
        windowed_assets: the assets of the source that have run, other than roll-ups.
        rollups: the roll-ups of the source that have run.
        copies: the tables of rebuilds and side replays; empty if no event is erased.
        log_erasures: the number of erasures of the event log before this one.
        gained: for a derived source, the events to add to its event log; otherwise None.
        gained_letters: for a derived source, the unjoined rows to add; otherwise None.
    """

    erasure: Erasure
    events: DataFrame
    letters: DataFrame
    windowed_assets: Sequence[Definition]
    rollups: Sequence[Definition]
    copies: Sequence[TableName]
    log_erasures: int
    gained: DataFrame | None = None
    gained_letters: DataFrame | None = None

    @property
    def is_empty(self) -> bool:
        return not self.erasure.changes_rows

    def apply_changes(self, log: Log) -> Log:
        """Return the source's event log as it is after the erasure."""
        return log.with_changes(self.events, self.gained)

    @property
    def gained_places(self) -> DataFrame | None:
        return None if self.gained is None else self.gained.select(PLACE)


def search_source(
    log: Log,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str],
    temp_tables: TempTables,
    last_arrival: int,
) -> SearchResult:
    """Search a source's log, dead letters and assets. Return the changes of an erasure.

    Args:
        definitions: all assets of the source.
        where: SQL condition on the columns of the log.
        texts: the texts to search for in dead letters.
        temp_tables: the temporary tables for `arrival` and `position` of the events and dead
            letters.
        last_arrival: the last arrival to search.
    """
    warehouse = log.warehouse
    source = log.source
    _, log_erasures = log.read_epoch()
    events = temp_tables.materialize_frame(
        affected_by_erasure.find_events(log, last_arrival, where)
    )
    letters = temp_tables.materialize_frame(
        affected_by_erasure.find_dead_letters(warehouse, log, last_arrival, texts)
    )
    windowed_assets = find_windowed_assets(warehouse, source, definitions)
    erasure = Erasure(
        source=source.name,
        through=last_arrival,
        events=_count_by_arrival(events),
        letters=_count_by_arrival(letters),
        windows=_find_affected_windows(log, definitions, windowed_assets, events),
    )
    return SearchResult(
        erasure,
        events,
        letters,
        windowed_assets,
        _find_rollups(warehouse, source, definitions),
        _list_copies_to_drop(warehouse, source, erasure),
        log_erasures,
    )


def search_derived_source(
    log: Log,
    source: DerivedSource,
    definitions: Sequence[Definition],
    temp_tables: TempTables,
    planned: Mapping[str, tuple[Log, SearchResult]],
) -> SearchResult:
    """Search a derived source for rows that were computed from events that its bases have lost.

    Args:
        definitions: all assets of the source.
        temp_tables: the temporary tables for the rows of the result.
        planned: for a dry run, the event log and the search result of each base that would change;
            otherwise empty.
    """
    warehouse = log.warehouse
    _, log_erasures = log.read_epoch()
    changed = _find_changes(log, source, temp_tables, planned)
    windowed_assets = find_windowed_assets(warehouse, source, definitions)
    gained_places = changed.gained.select(PLACE)
    gained_letters = changed.gained_letters.select(PLACE)
    log_after = log.with_changes(added=changed.gained)
    events = changed.lost.unionByName(gained_places)
    added_places = gained_places.unionByName(gained_letters)
    first_positions = added_places.groupBy("arrival").agg(F.min("position"))
    erasure = Erasure(
        source=source.name,
        through=_newest_arrival(log),
        events=_count_by_arrival(changed.lost),
        letters=_count_by_arrival(changed.lost_letters),
        windows=_find_affected_windows(log_after, definitions, windowed_assets, events),
        added=_to_numbers_by_arrival(first_positions),
    )
    return SearchResult(
        erasure,
        changed.lost,
        changed.lost_letters,
        windowed_assets,
        _find_rollups(warehouse, source, definitions),
        _list_copies_to_drop(warehouse, source, erasure),
        log_erasures,
        changed.gained,
        changed.gained_letters,
    )


def _find_changes(
    log: Log,
    source: DerivedSource,
    temp_tables: TempTables,
    planned: Mapping[str, tuple[Log, SearchResult]],
) -> ChangedRows:
    """Return the rows that a derived source loses and gains. The arguments are those of
    `search_derived_source`."""
    warehouse = log.warehouse
    base_logs = list[Log]()
    gained_by_base = list[DataFrame | None]()
    for base in source.base_sources:
        base_log = Log(warehouse, base)
        if base.name in planned:
            base_log, base_result = planned[base.name]
            base_logs.append(base_result.apply_changes(base_log))
            gained_by_base.append(base_result.gained_places)
        else:
            base_logs.append(base_log)
            gained_by_base.append(_find_gained_events(base_log))
    is_small = all(event_log.has_few_events() for event_log in [log, *base_logs])
    asset = source.derivation.asset
    with warehouse.use_planning(Planning.for_size(is_small)):
        if planned and asset is not None:
            _, base_result = planned[source.base_sources[0].name]
            return _find_rows_of_windows(log, asset, base_result, temp_tables, few=is_small)
        return find_changed_rows(log, source, base_logs, gained_by_base, temp_tables, few=is_small)


def check_recomputable(log: Log, source: DerivedSource) -> None:
    """Check that an erasure can change a derived source.

    Raises:
        DataError: the rows of the derived source can't be computed from its bases again.
    """
    warehouse = log.warehouse
    asset = source.derivation.asset
    newest = log.find_last_arrival()
    assert newest is not None
    try:
        if asset is not None and not warehouse.has_table(asset.published_table):
            raise DataError(f"the asset '{asset.name}' was dropped")
        columns = [f"`{name}`" for name in source.columns]
        log.read_events(newest.arrival - 1, newest.arrival).select(columns)
        _ = read_steps(warehouse, source, [newest.position]).compute_rows().schema
    except (AnalysisException, DataError, DefinitionError) as error:
        raise DataError(
            f"An erasure can't continue into '{source.name}', because its rows can't be computed "
            f"again: {summarize_error(error)}. Drop it (`tidemark drop {source.name}`), erase the "
            "events, and then ingest it again."
        ) from None


def _find_rows_of_windows(
    log: Log, asset: Definition, base_result: SearchResult, temp_tables: TempTables, *, few: bool
) -> ChangedRows:
    """Return the rows of a chain that may change if the windows of its asset are recomputed.

    Args:
        base_result: the search result of the erasure that recomputes these windows.
    """
    rows = log.read_events(-1, _newest_arrival(log))
    ranges = base_result.erasure.windows.get(asset.rolled_up_name or asset.name)
    in_ranges = "false"
    if ranges is not None:
        in_ranges = InRanges(FIRST, find_holding_ranges(asset, ranges)).to_sql()
    lost = rows.where(in_ranges).select(PLACE)
    letters = log.warehouse.read_frame(log.source.dead_letters_table).where("false")
    return ChangedRows(
        lost=temp_tables.materialize_frame(lost, few=few),
        lost_letters=letters.select(PLACE),
        gained=rows.where("false"),
        gained_letters=letters,
    )


def find_windowed_assets(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> list[Definition]:
    """Return the assets of a source that have run, other than roll-ups."""
    windowed_assets = list[Definition]()
    for definition in definitions:
        if definition.source.name != source.name or definition.rolled_up_name is not None:
            continue
        if Asset(warehouse, definition).state.read_last_commit().commit_number >= 0:
            windowed_assets.append(definition)
    return windowed_assets


def _find_rollups(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> list[Definition]:
    """Return the roll-ups of a source that have run."""
    rollups = list[Definition]()
    for definition in definitions:
        if definition.source.name != source.name or definition.rolled_up_name is None:
            continue
        if warehouse.has_table(definition.published_table):
            rollups.append(definition)
    return rollups


def list_asset_tables(warehouse: Warehouse, asset: str) -> list[TableName]:
    """Return the tables that belong to an asset, in the order to drop them: states first."""
    owner = tables_of.asset_owner(asset)
    owned_tables = [table for table in own_tables(warehouse) if table.owner == owner]
    return sorted(owned_tables, key=lambda table: (table.role is not Role.STATE, table))


def list_copies(warehouse: Warehouse, source: Source) -> list[TableName]:
    """Return the tables of rebuilds and side replays that were computed from a source's log.

    They are in the order in which to drop them: states and timelines first.
    """
    readers = Graph(own_tables(warehouse)).direct_readers(source.log_table.owner)
    copies = list[TableName]()
    for node in readers:
        copies += [table for table in node.tables if table.side]
    dropped_first = (Role.STATE, Role.TIMELINE)
    return sorted(copies, key=lambda table: (table.role not in dropped_first, table))


def _list_copies_to_drop(warehouse: Warehouse, source: Source, erasure: Erasure) -> list[TableName]:
    if not erasure.changes_events:
        return []
    return list_copies(warehouse, source)


def _find_gained_events(log: Log) -> DataFrame | None:
    """Return `arrival` and `position` of the events that unfinished erasures have added to a log.

    Erasures add events to derived sources, for example a joined row with a new partner. Return None
    if there are no such events.
    """
    first_positions = dict[int, int]()
    for erasure in erasures.find_unfinished(log.warehouse, log.source):
        for arrival, position in erasure.added.items():
            first_positions[arrival] = min(position, first_positions.get(arrival, position))
    if not first_positions:
        return None
    rows = log.read_events(min(first_positions) - 1, max(first_positions)).select(PLACE)
    return affected_by_erasure.select_added(rows, first_positions)


def _find_affected_windows(
    log: Log,
    definitions: Sequence[Definition],
    windowed_assets: Sequence[Definition],
    events: DataFrame,
) -> dict[str, Ranges]:
    """Return the ranges of the windows to recompute, by asset.

    For an asset that has not run, these are all windows: its first run may be in progress.

    Args:
        definitions: all assets of the source.
        windowed_assets: those that have run, other than roll-ups.
        events: `arrival` and `position` of the events that the erasure deletes or adds.
    """
    newest_arrival = _newest_arrival(log)
    ranges = dict[str, Ranges]()
    for definition in definitions:
        if definition.source.name != log.source.name or definition.rolled_up_name is not None:
            continue
        asset_ranges: Ranges | None = ()
        if definition in windowed_assets:
            asset_ranges = affected_by_erasure.find_affected_windows(
                log, definition, events, newest_arrival
            )
        if asset_ranges is not None:
            ranges[definition.name] = asset_ranges
    return ranges


def _count_by_arrival(places: DataFrame) -> dict[int, int]:
    return _to_numbers_by_arrival(places.groupBy("arrival").count())


def _to_numbers_by_arrival(rows: DataFrame) -> dict[int, int]:
    """Return the second column of some rows by the first, the arrival."""
    return {int(row[0]): int(row[1]) for row in rows.collect()}


def _newest_arrival(log: Log) -> int:
    newest = log.find_last_arrival()
    return -1 if newest is None else newest.arrival
