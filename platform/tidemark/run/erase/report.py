"""Report the effect of an erasure, or of its dry run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from tidemark.base.instants import iso
from tidemark.compute.affected.by_erasure import find_windows_with_events
from tidemark.compute.rollups import holding_ranges
from tidemark.define.definition import Definition
from tidemark.run.erase.search import SearchResult
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.log import Log

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
    """Result of an erasure, or of its dry run.

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
    log: Log, definitions: Sequence[Definition], found: SearchResult, *, dry_run: bool, resumed: int
) -> ErasureReport:
    """Return the report of an erasure. Must be called before anything is deleted.

    Args:
        definitions: all assets of the source, perhaps with those of other sources.
        resumed: as in `ErasureReport`.
    """
    erasure = found.erasure
    own = [d for d in definitions if d.source.name == log.source.name]
    published = (_find_published(log, definition, found) for definition in own)
    return ErasureReport(
        source=erasure.source,
        done=not dry_run,
        id=None if dry_run or found.is_empty else erasure.id,
        at=erasure.at,
        events=sum(erasure.events.values()),
        arrivals=len(erasure.events),
        dead_letters=sum(erasure.letters.values()),
        unsearched=_count_searchable(log) - sum(erasure.letters.values()),
        resumed=resumed,
        places=_list_affected_tables(log, found),
        sent=[each for each in published if each is not None],
        removed=[*found.copies],
    )


def _count_searchable(log: Log) -> int:
    rows = log.warehouse.take(log.source.dead_letters_table, columns=["bytes"])
    return rows.num_rows - rows["bytes"].null_count


def _list_affected_tables(log: Log, found: SearchResult) -> list[_AffectedTable]:
    warehouse, source, erasure = log.warehouse, log.source, found.erasure
    affected = [
        _AffectedTable(source.log_table, sum(erasure.events.values()), "deleted"),
        _AffectedTable(
            source.dead_letters_table,
            sum(erasure.letters.values()),
            "emptied" if found.gained is None else "deleted",
        ),
    ]
    for table, gained in (
        (source.log_table, found.gained),
        (source.dead_letters_table, found.gained_letters),
    ):
        if gained is not None:
            affected.append(_AffectedTable(table, gained.count(), "added"))
    for each in [*found.counted, *found.rolled]:
        ranges = erasure.windows.get(each.follows or each.name)
        if ranges is None:
            continue
        for table in each.tables:
            if warehouse.exists(table):
                some = holding_ranges(each, ranges)
                rows = warehouse.take(
                    table, InRanges("window_start", some), columns=["window_start"]
                )
                affected.append(_AffectedTable(table, rows.num_rows, "recomputed"))
    return [place for place in affected if place.rows]


def _find_published(
    log: Log, definition: Definition, found: SearchResult
) -> _PublishedWindows | None:
    if definition.sink is None or not found.erasure.events:
        return None
    if not log.warehouse.exists(definition.table):
        return None
    rows = find_windows_with_events(log, definition, found.events, found.erasure.through)
    keys = F.struct(*(F.col(k) for k in definition.keys)) if definition.keys else F.lit(None)
    some = (
        rows.orderBy("window_start")
        .select(F.unix_micros("window_start"), keys)
        .limit(_MAX_LISTED_WINDOWS)
    )
    listed = [
        {"window_start": iso(r[0]), "keys": {} if r[1] is None else r[1].asDict()}
        for r in some.collect()
    ]
    total = len(listed) if len(listed) < _MAX_LISTED_WINDOWS else rows.count()
    return _PublishedWindows(definition.name, str(definition.sink), total, listed)
