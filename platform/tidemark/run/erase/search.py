"""Search for the events and dead letters to erase, and for everything computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError, summarize
from tidemark.compute.affected import by_erasure as affected_by_erasure
from tidemark.compute.derived.lost_rows import ChangedRows, find_changed_rows
from tidemark.compute.derived.rows import read_steps
from tidemark.compute.materialize import TempTables
from tidemark.compute.rollups import holding_ranges
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
        counted: the assets of the source that have run, other than roll-ups.
        rolled: the roll-ups of the source that have run.
        copies: the tables of rebuilds and side replays; empty if no event is erased.
        log_erasures: the number of erasures of the event log before this one.
        gained: for a derived source, the events to add to its event log; otherwise None.
        gained_letters: for a derived source, the unjoined rows to add; otherwise None.
    """

    erasure: Erasure
    events: DataFrame
    letters: DataFrame
    counted: Sequence[Definition]
    rolled: Sequence[Definition]
    copies: Sequence[TableName]
    log_erasures: int
    gained: DataFrame | None = None
    gained_letters: DataFrame | None = None

    @property
    def is_empty(self) -> bool:
        return not self.erasure.changes

    def change(self, log: Log) -> Log:
        """Return the source's event log as it is after the erasure."""
        return log.with_changes(self.events, self.gained)

    @property
    def gained_places(self) -> DataFrame | None:
        return None if self.gained is None else self.gained.select(*affected_by_erasure.PLACE)


def search(
    log: Log,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str],
    place: TempTables,
    through: int,
) -> SearchResult:
    """Search a source's log, dead letters and assets. Return the changes of an erasure.

    Args:
        definitions: all assets of the source.
        where: SQL condition on the columns of the log.
        texts: the texts to search for in dead letters.
        place: the temporary tables for `arrival` and `position` of the events and dead letters.
        through: the last arrival to search.
    """
    warehouse, source = log.warehouse, log.source
    _, log_erasures = log.epoch()
    events = place.materialize_frame(affected_by_erasure.find_events(log, through, where))
    letters = place.materialize_frame(
        affected_by_erasure.find_dead_letters(warehouse, log, through, texts)
    )
    counted = find_counted(warehouse, source, definitions)
    erasure = Erasure(
        source=source.name,
        through=through,
        events=_count_by_arrival(events),
        letters=_count_by_arrival(letters),
        windows=_find_affected_windows(log, definitions, counted, events),
    )
    return SearchResult(
        erasure,
        events,
        letters,
        counted,
        _find_rolled(warehouse, source, definitions),
        list_copies(warehouse, source) if erasure.changes_events else [],
        log_erasures,
    )


def search_derived_source(
    log: Log,
    source: DerivedSource,
    definitions: Sequence[Definition],
    place: TempTables,
    planned: Mapping[str, tuple[Log, SearchResult]],
) -> SearchResult:
    """Search a derived source for rows that were computed from events that its bases have lost.

    Args:
        definitions: all assets of the source.
        place: the temporary tables for the rows of the result.
        planned: for a dry run, the event log and the search result of each base that would change;
            otherwise empty.
    """
    warehouse = log.warehouse
    _, log_erasures = log.epoch()
    last = log.last()
    through = -1 if last is None else last.arrival
    bases, gained = list[Log](), list[DataFrame | None]()
    for base in source.bases:
        base_log = Log(warehouse, base)
        if base.name in planned:
            base_log, found = planned[base.name]
            bases.append(found.change(base_log))
            gained.append(found.gained_places)
        else:
            bases.append(base_log)
            gained.append(_find_gained(base_log))
    few = all(each.few() for each in (log, *bases))
    with warehouse.planning(Planning.of(few)):
        if planned and source.derivation.asset is not None:
            _, found = planned[source.bases[0].name]
            changed = _find_rows_of_windows(log, source.derivation.asset, found, place, few=few)
        else:
            changed = find_changed_rows(log, source, bases, gained, place, few=few)
    counted = find_counted(warehouse, source, definitions)
    added = changed.gained.select(*affected_by_erasure.PLACE)
    after = log.with_changes(added=changed.gained)
    events = changed.lost.unionByName(added)
    first = added.unionByName(changed.gained_letters.select(*affected_by_erasure.PLACE))
    first = first.groupBy("arrival").agg(F.min("position"))
    erasure = Erasure(
        source=source.name,
        through=through,
        events=_count_by_arrival(changed.lost),
        letters=_count_by_arrival(changed.lost_letters),
        windows=_find_affected_windows(after, definitions, counted, events),
        added={int(r[0]): int(r[1]) for r in first.collect()},
    )
    return SearchResult(
        erasure,
        changed.lost,
        changed.lost_letters,
        counted,
        _find_rolled(warehouse, source, definitions),
        list_copies(warehouse, source) if erasure.changes_events else [],
        log_erasures,
        changed.gained,
        changed.gained_letters,
    )


def check_continuing(log: Log, source: DerivedSource) -> None:
    """Check that an erasure can change a derived source.

    Raises:
        DataError: the rows of the derived source can't be computed from its bases again.
    """
    warehouse, asset = log.warehouse, source.derivation.asset
    last = log.last()
    assert last is not None
    try:
        if asset is not None and not warehouse.exists(asset.table):
            raise DataError(f"the asset '{asset.name}' was dropped")
        columns = [f"`{name}`" for name in source.columns]
        log.read(last.arrival - 1, last.arrival).select(*columns)
        _ = read_steps(warehouse, source, [last.position]).compute_rows().schema
    except (AnalysisException, DataError, DefinitionError) as error:
        raise DataError(
            f"An erasure can't continue into '{source.name}', because its rows can't be computed "
            f"again: {summarize(error)}. Drop it (`tidemark drop {source.name}`), erase the "
            "events, and then ingest it again."
        ) from None


def _find_rows_of_windows(
    log: Log, asset: Definition, found: SearchResult, place: TempTables, *, few: bool
) -> ChangedRows:
    """Return the rows of a chain that may change if the windows of its asset are recomputed.

    Args:
        found: the search result of the erasure that recomputes these windows.
    """
    last, ranges = log.last(), found.erasure.windows.get(asset.follows or asset.name)
    rows = log.read(-1, -1 if last is None else last.arrival)
    near = "false" if ranges is None else InRanges(FIRST, holding_ranges(asset, ranges)).sql()
    lost = rows.where(near).select(*affected_by_erasure.PLACE)
    letters = log.warehouse.read(log.source.dead_letters_table).where("false")
    return ChangedRows(
        lost=place.materialize_frame(lost, few=few),
        lost_letters=letters.select(*affected_by_erasure.PLACE),
        gained=rows.where("false"),
        gained_letters=letters,
    )


def find_counted(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> list[Definition]:
    own = [d for d in definitions if d.source.name == source.name and d.follows is None]
    return [d for d in own if Asset(warehouse, d).state.last().commit_number >= 0]


def _find_rolled(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> list[Definition]:
    own = [d for d in definitions if d.source.name == source.name and d.follows is not None]
    return [d for d in own if warehouse.exists(d.table)]


def list_owned(warehouse: Warehouse, asset: str) -> list[TableName]:
    """Return the tables that belong to an asset, in the order to drop them: states first."""
    found = [t for t in own_tables(warehouse) if t.owner == tables_of.asset(asset)]
    return sorted(found, key=lambda table: (table.role is not Role.STATE, table))


def list_copies(warehouse: Warehouse, source: Source) -> list[TableName]:
    """Return the tables of rebuilds and side replays that were computed from a source's log.

    They are in the order in which to drop them: states and timelines first.
    """
    readers = Graph(own_tables(warehouse)).readers(source.log_table.owner)
    copies = [table for node in readers for table in node.tables if table.side]
    first = (Role.STATE, Role.TIMELINE)
    return sorted(copies, key=lambda table: (table.role not in first, table))


def _find_gained(log: Log) -> DataFrame | None:
    """Return `arrival` and `position` of the events that unfinished erasures have added to a log.

    Erasures add events to derived sources, for example a joined row with a new partner. Return None
    if there are no such events.
    """
    added = [e.added for e in erasures.find_unfinished(log.warehouse, log.source) if e.added]
    if not added:
        return None
    first = {arrival: 0 for each in added for arrival in each}
    first = {n: min(each[n] for each in added if n in each) for n in first}
    rows = log.read(min(first) - 1, max(first)).select(*affected_by_erasure.PLACE)
    return affected_by_erasure.select_added(rows, first)


def _find_affected_windows(
    log: Log, definitions: Sequence[Definition], counted: Sequence[Definition], events: DataFrame
) -> dict[str, Ranges]:
    """Return the ranges of the windows to recompute, by asset.

    For an asset that has not run, these are all windows: its first run may be in progress.

    Args:
        definitions: all assets of the source.
        counted: those that have run.
        events: `arrival` and `position` of the events that the erasure deletes or adds.
    """
    last = log.last()
    through = -1 if last is None else last.arrival
    ranges = dict[str, Ranges]()
    for definition in definitions:
        if definition.source.name != log.source.name or definition.follows is not None:
            continue
        found: Ranges | None = ()
        if definition in counted:
            found = affected_by_erasure.find_affected_windows(log, definition, events, through)
        if found is not None:
            ranges[definition.name] = found
    return ranges


def _count_by_arrival(places: DataFrame) -> dict[int, int]:
    return {int(r[0]): int(r[1]) for r in places.groupBy("arrival").count().collect()}
