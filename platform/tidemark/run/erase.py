"""Erasure: a person's events are deleted from a source's log, and all that was computed from them.

The events leave the log in one commit, and every window that had one is then computed anew from
what the log has, and replaced, as a backfill does it: so batch and stream agree afterwards as they
did before. Nothing that Tidemark notes of it says what the events were: neither the condition nor a
value is in a commit, in the record of erasures (`store.erasures`) or in a log file.

| a process that is killed | leaves |
| --- | --- |
| before the log's commit | an erasure that never was: it is asked for once more |
| after it | windows to be computed anew: the source's next erasure, whatever for, does so |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.failpoint import reach
from tidemark.base.instants import iso
from tidemark.compute import touched
from tidemark.compute.held import Scratch, scratch
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName
from tidemark.engine.process import Tell, silent
from tidemark.quality import results
from tidemark.run import runner
from tidemark.store import claims, erasures
from tidemark.store.asset import Asset
from tidemark.store.committers import Merge
from tidemark.store.conditions import Within
from tidemark.store.erasures import BEGUN, ENDED, VOID, Erasure
from tidemark.store.log import Log
from tidemark.store.maintenance import own_tables
from tidemark.store.ranges import Ranges, joined
from tidemark.store.state import State
from tidemark.store.warehouse import SCRATCH, Warehouse

MOST = 1000
"""Windows of an outlet that are listed; all are counted."""


@dataclass(frozen=True)
class Place:
    """A table that had something of the events.

    Args:
        rows: how many rows go, or are computed anew.
        what: what becomes of them.
    """

    table: str
    rows: int
    what: str


@dataclass(frozen=True)
class Sent:
    """Windows that had one of the events, and may have been brought out of the warehouse.

    Args:
        outlet: where to.
        total: how many; `windows` lists the first of them, each with its start and keys.
    """

    asset: str
    outlet: str
    total: int
    windows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Erased:
    """What an erasure has touched, or would.

    Args:
        source: its name.
        done: whether it was done; otherwise it was only looked at.
        id: what it is on record by; None where nothing was deleted.
        at: when it began, in microseconds.
        events: how many were deleted from the log.
        arrivals: how many arrivals had brought them.
        dead_letters: how many lost their content.
        unsearched: dead letters with content in which no condition on columns finds anything.
        resumed: how many earlier erasures, killed before their end, were ended first.
        places: the tables.
        sent: what is beyond reach.
        removed: tables beside an asset's, which are gone.
        swept: how many folders that killed processes had set rows aside in are gone.
        unswept: those that stay, by name, as a living process has them or they can't be removed.
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
    places: list[Place] = field(default_factory=list[Place])
    sent: list[Sent] = field(default_factory=list[Sent])
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
    tell: Tell = silent,
) -> Erased:
    """Delete the events of which a condition is true, and all that was computed from them.

    The caller sees to it that nothing is ingested meanwhile (`sole`).

    Args:
        definitions: all assets of the source.
        where: SQL on the columns of the log.
        texts: the content of dead letters with one of these in it goes, too.
        dry_run: only say what would be touched.
        then: what is done before an erasure counts as ended; it may be done twice.
        tell: takes a sentence at each step.

    Raises:
        DefinitionError: a condition that can't be read; or an asset's tables can't be gone on with
            by its definition.
        DataError: the source was never ingested.
        ConflictError: other runs of an asset were quicker, time and again.
    """
    log = Log(warehouse, source)
    if not warehouse.exists(source.timeline_table) or (last := log.last()) is None:
        raise DataError(f"Source '{source.name}' has no arrivals yet: there is nothing to erase.")
    counted, rolled = _run_before(warehouse, source, definitions)
    resumed = 0
    if not dry_run:
        log.recover()
        for left in erasures.unended(warehouse, source):
            tell("end an erasure that was killed")
            resumed += _end(log, definitions, left, then, tell)
        for each in counted:
            # So no run has an event in its hands that is to go, and each definition is its tables'.
            tell(f"take in what {each.name} has not seen")
            runner.incremental(warehouse, each)
    with scratch(warehouse) as place:
        tell("look for the events")
        events = place.keep(touched.matching(log, last.arrival, where))
        letters = place.keep(touched.letters(warehouse, log, last.arrival, texts))
        erasure = Erasure(
            source=source.name,
            through=last.arrival,
            events=_by_arrival(events),
            letters=_by_arrival(letters),
            windows=_windows(log, counted, events, last.arrival),
        )
        nothing = not erasure.events and not erasure.letters
        found = Erased(
            source=source.name,
            done=not dry_run,
            id=None if dry_run or nothing else erasure.id,
            at=erasure.at,
            events=sum(erasure.events.values()),
            arrivals=len(erasure.events),
            dead_letters=sum(erasure.letters.values()),
            unsearched=_unsearched(log) - sum(erasure.letters.values()),
            resumed=resumed,
            places=_places(warehouse, source, counted, rolled, erasure),
            sent=[s for d in definitions if (s := _sent(log, d, events, erasure)) is not None],
            removed=_removed(warehouse, source, definitions, erasure),
        )
        if dry_run:
            return found
        if not nothing:
            erasures.note(warehouse, erasure, BEGUN)
            reach("erasure")
            tell("delete the events from the log")
            _empty(log, erasure, letters, place)
            reach("letters")
            _leave(log, erasure, events, place)
            reach("erased")
    if not nothing:
        _end(log, definitions, erasure, then, tell)
    # At the end: the engine goes on for a moment with what a killed process had asked of it.
    swept = claims.sweep(warehouse.path(SCRATCH))
    return replace(found, swept=swept.gone, unswept=swept.left)


def tables(source: Source, definitions: Sequence[Definition]) -> list[str]:
    """The tables in which something of a source's events may be."""
    own = [t for d in definitions if d.source.name == source.name for t in d.tables]
    return [source.log_table, source.dead_letters_table, *dict.fromkeys(own), results.TABLE]


def _run_before(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition]
) -> tuple[list[Definition], list[Definition]]:
    """The assets of a source that have run: those that count events, and those that follow them."""
    own = [d for d in definitions if d.source.name == source.name]
    there = [d for d in own if Asset(warehouse, d).state.last().seq >= 0]
    counted = [d for d in there if d.follows is None]
    return counted, [d for d in there if d.follows is not None and warehouse.exists(d.table)]


def _windows(
    log: Log, counted: Sequence[Definition], events: DataFrame, through: int
) -> dict[str, Ranges]:
    found = {d.name: touched.touched(log, d, events, through) for d in counted}
    return {name: ranges for name, ranges in found.items() if ranges is not None}


def _by_arrival(places: DataFrame) -> dict[int, int]:
    return {int(r[0]): int(r[1]) for r in places.groupBy("arrival").count().collect()}


def _unsearched(log: Log) -> int:
    rows = log.warehouse.take(log.source.dead_letters_table, columns=["bytes"])
    return rows.num_rows - rows["bytes"].null_count


def _places(
    warehouse: Warehouse,
    source: Source,
    counted: Sequence[Definition],
    rolled: Sequence[Definition],
    erasure: Erasure,
) -> list[Place]:
    found = [
        Place(source.log_table, sum(erasure.events.values()), "deleted"),
        Place(source.dead_letters_table, sum(erasure.letters.values()), "emptied"),
    ]
    for each in [*counted, *rolled]:
        ranges = erasure.windows.get(each.follows or each.name)
        if ranges is None:
            continue
        for table in each.tables:
            if warehouse.exists(table):
                # A roll-up's windows start before those of its base.
                some = _widened(ranges, each.window.reach if each.follows else 0)
                rows = warehouse.take(table, Within("window_start", some), columns=["window_start"])
                found.append(Place(table, rows.num_rows, "computed anew"))
    return [place for place in found if place.rows]


def _widened(ranges: Ranges, reach_: int) -> Ranges:
    return joined((start - reach_, end) for start, end in ranges) if reach_ else ranges


def _sent(log: Log, definition: Definition, events: DataFrame, erasure: Erasure) -> Sent | None:
    if definition.publishes_to is None or not erasure.events:
        return None
    if not log.warehouse.exists(definition.table):
        return None
    rows = touched.windows(log, definition, events, erasure.through)
    keys = F.struct(*(F.col(k) for k in definition.keys)) if definition.keys else F.lit(None)
    some = rows.orderBy("window_start").select(F.unix_micros("window_start"), keys).limit(MOST)
    listed = [
        {"window_start": iso(r[0]), "keys": {} if r[1] is None else r[1].asDict()}
        for r in some.collect()
    ]
    total = len(listed) if len(listed) < MOST else rows.count()
    return Sent(definition.name, str(definition.publishes_to), total, listed)


def _leave(log: Log, erasure: Erasure, events: DataFrame, place: Scratch) -> None:
    """Let the events leave the log: the arrivals that had one are written without them."""
    table, ranges = log.source.log_table, erasures.numbers(erasure.events)
    bound = Within("arrival", ranges or ((-1, 0),), instants=False)
    staying = log.warehouse.read(table, bound).join(events, touched.PLACE, "left_anti")
    rows = place.hold(staying, few=False)
    # By arrivals: a Delta log has the condition of each commit.
    log.warehouse.replace(rows, table, _arrivals(ranges), erasure.app, 0)


def _empty(log: Log, erasure: Erasure, letters: DataFrame, place: Scratch) -> None:
    """Let dead letters keep their position and reason alone."""
    if not erasure.letters:
        return
    table, ranges = log.source.dead_letters_table, erasures.numbers(erasure.letters)
    rows = log.warehouse.read(table, Within("arrival", ranges, instants=False))
    mark = letters.withColumn("_empty", F.lit(True))
    marked = rows.join(mark, touched.PLACE, "left")
    kinds = dict(rows.dtypes)
    empty = {
        name: F.when(F.col("_empty").isNull(), F.col(name)).otherwise(F.lit(None).cast(kinds[name]))
        for name in ("bytes", "key", "headers", "correlation_id")
    }
    held = place.hold(marked.withColumns(empty).select(*rows.columns), few=False)
    log.warehouse.replace(held, table, _arrivals(ranges), erasure.app, 0)


def _arrivals(ranges: Ranges) -> str:
    each = [f"(arrival >= {start} AND arrival < {end})" for start, end in ranges or ((-1, 0),)]
    return f"({' OR '.join(each)})"


def _end(
    log: Log,
    definitions: Sequence[Definition],
    erasure: Erasure,
    then: Callable[[], None] | None,
    tell: Tell,
) -> bool:
    """Compute anew what had one of the events; whether any was deleted.

    Some may have come since the erasure looked what there is: a first run that had read the log
    before and commits after. So each asset of the source that has a state's table by now, be it
    without a commit, gets one here, of what the log has. A run that makes its table later sees
    before its first commit that the events have left the log (`commit.store`), and counts anew.
    """
    warehouse = log.warehouse
    if warehouse.transaction(log.source.log_table, erasure.app) < 0:
        erasures.note(warehouse, erasure, VOID)
        return False
    own = [d for d in definitions if d.source.name == log.source.name]
    known = {d.name: d for d in own if d.follows is None}
    # Windows that were not looked for are all.
    rest = dict.fromkeys(known, ()) if erasure.events else {}
    for name, ranges in {**rest, **erasure.windows}.items():
        there = name in known and State(warehouse, known[name]).life() is not None
        if there:
            tell(f"compute {name} anew")
            _anew(warehouse, known[name], ranges)
            reach("counted")
        elif name in erasure.windows:
            _clear(warehouse, name, erasure, defined=name in known)
        # After that: a switch that is under way takes their rows, and was ended with the rest.
        for table in _beside(warehouse, name):
            warehouse.drop(table)
        for roll in (r for r in own if there and r.follows == name and warehouse.exists(r.table)):
            tell(f"compute {roll.name} anew")
            runner.incremental(warehouse, roll)
            _settle(warehouse, roll, ranges)
    if then is not None:
        then()
    erasures.note(warehouse, erasure, ENDED)
    return True


def _clear(warehouse: Warehouse, name: str, erasure: Erasure, *, defined: bool) -> None:
    """Leave nothing of an asset that was dropped since the erasure began: with its tables the
    events went, and where it is defined, its next run counts anew.

    Raises:
        DataError: its tables are there, and no definition to compute them by.
    """
    # Of one that is defined, the state's table is that of a run that has just begun.
    left = [
        table
        for table in _owned(warehouse, name)
        if not table.side and not (defined and table.role is Role.STATE)
    ]
    if left and not defined:
        raise DataError(
            f"An erasure of '{erasure.source}' was killed before the windows of '{name}' were "
            "computed anew, and no such asset is defined any more: define it again, or remove its "
            f"tables ({', '.join(left)})."
        )
    for table in left:
        # A drop that was killed had left it.
        warehouse.drop(table)


def _anew(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    asset, seq = Asset(warehouse, definition), -1
    # Again where a switch came in between.
    while seq < 0 or asset.state.at(seq).switched > asset.state.forgotten():
        last = asset.state.last()
        if last.switched > asset.state.forgotten():
            # What the tables had before a switch has the events.
            asset.state.forget(last.switched)
        if last.seq < 0:
            seq = runner.backfill(warehouse, definition).seq
        else:
            seq = runner.count_without(warehouse, definition, ranges).seq
    _settle(warehouse, definition, ranges)


def _settle(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    """Withdraw what stayed of windows that are withheld now, and what checks told of before."""
    asset = Asset(warehouse, definition)
    newest = asset.published()
    if warehouse.exists(definition.quarantine_table):
        by = definition.by_window
        held = warehouse.take(definition.quarantine_table, columns=[*by, "seq"])
        # A withheld window keeps its last good row, which was computed with the events.
        earlier = Merge(on=by, delete="t.seq < s.seq", update=None, insert=None)
        if held.num_rows:
            warehouse.merge(_within(held, ranges, definition), definition.table, earlier)
    results.silence(asset, ranges, newest)


def _within(held: pa.Table, ranges: Ranges, definition: Definition) -> pa.Table:
    """Those of the withheld windows that start in one of the ranges; of a roll-up, or without a
    range, all."""
    if not ranges or definition.follows is not None:
        return held
    return held.filter(Within("window_start", ranges).expression())


def _removed(
    warehouse: Warehouse, source: Source, definitions: Sequence[Definition], erasure: Erasure
) -> list[str]:
    """The tables that go."""
    own = [d.name for d in definitions if d.source.name == source.name and d.follows is None]
    return [t for name in own for t in _beside(warehouse, name)] if erasure.events else []


def _beside(warehouse: Warehouse, asset: str) -> list[TableName]:
    """The tables that a rebuild or a replay has made beside an asset's, the states first."""
    return [table for table in _owned(warehouse, asset) if table.side]


def _owned(warehouse: Warehouse, asset: str) -> list[TableName]:
    """Return the tables that belong to an asset, in the order in which they are dropped: the
    states first."""
    found = [t for t in own_tables(warehouse) if t.owner == tables_of.asset(asset)]
    return sorted(found, key=lambda table: (table.role is not Role.STATE, table))
