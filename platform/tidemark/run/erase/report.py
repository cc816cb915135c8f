"""Report the effect of an erasure, or of its dry run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyspark.sql import functions as F

from tidemark.base.instants import format_instant
from tidemark.compute.affected.by_erasure import find_windows_with_events
from tidemark.compute.rollups import find_holding_ranges
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.run.erase.search import SearchResult
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.log import Log
from tidemark.store.upkeep.erasures import Erasure
from tidemark.store.warehouse import Warehouse

_MAX_LISTED_WINDOWS = 1000
"""Maximum number of a sink's windows that are listed; all are counted."""


@dataclass(frozen=True)
class _AffectedTable:
    """A table that an erasure changes.

    Args:
        rows: number of affected rows.
        what: the effect on these rows: `deleted`, `emptied`, `added` or `recomputed`.
    """

    table: str
    rows: int
    what: str


@dataclass(frozen=True)
class _PublishedWindows:
    """Windows that contained one of the events and may have been published outside the warehouse.

    Args:
        outlet: the sink to which the windows were published.
        total: number of windows; `windows` lists the first of them, each with its start and keys.
    """

    asset: str
    outlet: str
    total: int
    windows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ErasureReport:
    """Everything that an erasure deleted or, as a dry run, would delete from Tidemark's tables.

    Args:
        done: true if the erasure was carried out; false for a dry run.
        id: id of the erasure on record; None if nothing was deleted.
        at: start time in microseconds.
        events: number of deleted events.
        arrivals: number of arrivals that had brought these events.
        dead_letters: number of dead letters whose content was deleted.
        unsearched: number of other dead letters with content, which a condition on columns can't
            search.
        resumed: number of interrupted erasures of the source that were finished first.
        places: the affected tables.
        sent: windows published to sinks, from which Tidemark can't delete them.
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
    places: list[_AffectedTable] = field(default_factory=list[_AffectedTable])
    sent: list[_PublishedWindows] = field(default_factory=list[_PublishedWindows])
    removed: list[str] = field(default_factory=list[str])
    swept: int = 0
    unswept: list[str] = field(default_factory=list[str])


def build_report(
    log: Log,
    definitions: Sequence[Definition],
    search_result: SearchResult,
    *,
    dry_run: bool,
    resumed: int,
) -> ErasureReport:
    """Return the report of an erasure. Must be called before anything is deleted.

    Args:
        definitions: all assets of the source, perhaps with those of other sources.
        resumed: as in `ErasureReport`.
    """
    erasure = search_result.erasure
    published = list[_PublishedWindows]()
    for definition in definitions:
        if definition.source.name == log.source.name:
            published.extend(_find_published(log, definition, search_result))
    return ErasureReport(
        source=erasure.source,
        done=not dry_run,
        id=None if dry_run or search_result.is_empty else erasure.id,
        at=erasure.started_at,
        events=sum(erasure.events.values()),
        arrivals=len(erasure.events),
        dead_letters=sum(erasure.letters.values()),
        unsearched=_count_searchable(log) - sum(erasure.letters.values()),
        resumed=resumed,
        places=_list_affected_tables(log, search_result),
        sent=published,
        removed=list(search_result.copies),
    )


def _count_searchable(log: Log) -> int:
    rows = log.warehouse.load_rows(log.source.dead_letters_table, columns=["bytes"])
    return rows.num_rows - rows["bytes"].null_count


def _list_affected_tables(log: Log, search_result: SearchResult) -> list[_AffectedTable]:
    affected = _list_source_tables(log.source, search_result)
    for definition in chain(search_result.windowed_assets, search_result.rollups):
        affected.extend(_list_recomputed_tables(log.warehouse, definition, search_result.erasure))
    return [table_rows for table_rows in affected if table_rows.rows]


def _list_source_tables(source: Source, search_result: SearchResult) -> list[_AffectedTable]:
    """Return how many rows of a source's own tables change."""
    events = sum(search_result.erasure.events.values())
    letters = sum(search_result.erasure.letters.values())
    effect_on_letters = "emptied" if search_result.gained is None else "deleted"
    affected = [
        _AffectedTable(source.log_table, events, "deleted"),
        _AffectedTable(source.dead_letters_table, letters, effect_on_letters),
    ]
    if search_result.gained is not None:
        gained = search_result.gained.count()
        affected.append(_AffectedTable(source.log_table, gained, "added"))
    if search_result.gained_letters is not None:
        gained = search_result.gained_letters.count()
        affected.append(_AffectedTable(source.dead_letters_table, gained, "added"))
    return affected


def _list_recomputed_tables(
    warehouse: Warehouse, definition: Definition, erasure: Erasure
) -> list[_AffectedTable]:
    """Return how many windows are recomputed in each table of an asset."""
    ranges = erasure.windows.get(definition.rolled_up_name or definition.name)
    if ranges is None:
        return []
    affected = list[_AffectedTable]()
    for table in definition.own_tables:
        if warehouse.has_table(table):
            in_ranges = InRanges("window_start", find_holding_ranges(definition, ranges))
            rows = warehouse.load_rows(table, in_ranges, columns=["window_start"])
            affected.append(_AffectedTable(table, rows.num_rows, "recomputed"))
    return affected


def _find_published(
    log: Log, definition: Definition, search_result: SearchResult
) -> list[_PublishedWindows]:
    """Return the windows that an asset may have published to its sink; nothing if it has none."""
    erasure = search_result.erasure
    if definition.sink is None or not erasure.events:
        return []
    if not log.warehouse.has_table(definition.published_table):
        return []
    windows = find_windows_with_events(log, definition, search_result.events, erasure.through)
    keys = F.struct(list(definition.keys)) if definition.keys else F.lit(None)
    first_windows = (
        windows.orderBy("window_start")
        .select(F.unix_micros("window_start"), keys)
        .limit(_MAX_LISTED_WINDOWS)
    )
    listed = list[dict[str, Any]]()
    for row in first_windows.collect():
        window_keys = {} if row[1] is None else row[1].asDict()
        listed.append({"window_start": format_instant(row[0]), "keys": window_keys})
    total = len(listed)
    if total == _MAX_LISTED_WINDOWS:
        total = windows.count()
    return [_PublishedWindows(definition.name, str(definition.sink), total, listed)]
