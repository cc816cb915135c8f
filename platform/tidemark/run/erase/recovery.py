"""Recompute everything that contained an erased event, even after the erasure was killed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.failpoint import pass_fail_point
from tidemark.compute.affected import by_erasure
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.tables import Role
from tidemark.engine.process import ProgressCallback
from tidemark.quality import results
from tidemark.quality.quarantine import RELEASED
from tidemark.run import runner
from tidemark.run.erase.deletion import count_erasure, remove_copies
from tidemark.run.erase.search import list_owned
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import Equals, InRanges
from tidemark.store.commits.ranges import Ranges
from tidemark.store.committers.values import Merge
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import to_micros
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import VOID, Erasure
from tidemark.store.warehouse import Warehouse


def recompute(
    log: Log,
    definitions: Sequence[Definition],
    erasure: Erasure,
    on_progress: ProgressCallback,
) -> bool:
    """Recompute the windows of an erasure that was recorded, and return True.

    Runs that have read the events can't commit any more. Tables of rebuilds and side replays are
    deleted.

    If the erasure was killed before its commit to the event log, record it as void instead, and
    return False.

    Args:
        definitions: all assets of the source.
    """
    warehouse = log.warehouse
    if warehouse.transaction(log.source.log_table, erasure.app) < 0:
        # If its process is only paused, it can't delete the events any more.
        count_erasure(log)
        erasures.record(warehouse, erasure, VOID)
        return False
    own = [d for d in definitions if d.source.name == log.source.name]
    known = {d.name: d for d in own if d.follows is None}
    if erasure.changes_events:
        remove_copies(warehouse, log.source, list(known.values()))
        pass_fail_point("fenced")
    _count_added(log, erasure)
    pass_fail_point("added")
    for name, ranges in erasure.windows.items():
        definition = known.get(name)
        if definition is None or State(warehouse, definition).last().commit_number < 0:
            _drop_remains(warehouse, name, erasure, defined=definition is not None)
            continue
        on_progress(f"recompute {name}")
        _recompute(warehouse, definition, ranges)
        pass_fail_point("counted")
        for roll in (r for r in own if r.follows == name and warehouse.exists(r.table)):
            on_progress(f"recompute {roll.name}")
            runner.incremental(warehouse, roll)
            _remove_old_values(warehouse, roll, ranges)
    # A chain that began after the deletion may have read windows from before the recomputation.
    count_erasure(log)
    return True


def _recompute(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    runner.recompute_erased(warehouse, definition, ranges)
    _remove_old_values(warehouse, definition, ranges)


def _drop_remains(warehouse: Warehouse, name: str, erasure: Erasure, *, defined: bool) -> None:
    """Delete the tables that an interrupted drop of an asset has left.

    Do nothing if the asset has not run yet. The next run of the asset counts all events from the
    log.

    Args:
        defined: true if the asset is still defined.

    Raises:
        DataError: the asset is no longer defined, but has tables. None of them is deleted.
    """
    # The state table of a defined asset may be that of a run that has just begun.
    left = [
        table
        for table in list_owned(warehouse, name)
        if not table.side and not (defined and table.role is Role.STATE)
    ]
    if left and not defined:
        raise DataError(
            f"An erasure of '{erasure.source}' was killed before the windows of '{name}' were "
            f"recomputed, and '{name}' is no longer defined. Define it again, or delete its tables "
            f"({', '.join(left)})."
        )
    for table in left:
        # An interrupted drop left the table behind.
        warehouse.drop(table)


def _remove_old_values(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    """Delete values that were computed with erased events, and that no run replaces.

    These are the published rows of windows that are now quarantined, and the values in results of
    checks before the recomputation.
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

    Without a range, or for a roll-up, return all quarantined windows.
    """
    if not ranges or definition.follows is not None:
        return quarantined
    return quarantined.filter(InRanges("window_start", ranges).expression())


_NONE: Mapping[str, Any] = {"rows": 0, "oldest": None, "newest": None}


def _count_added(log: Log, erasure: Erasure) -> None:
    """Update the timeline's counts and event time ranges for the rows that an erasure has added.

    Otherwise runs and joins would skip arrivals that had no events before. After an interruption,
    the function can be called again.
    """
    if not erasure.added:
        return
    warehouse, source = log.warehouse, log.source
    time = F.unix_micros(F.col(f"`{source.event_time}`"))
    bounds = (F.min(time).alias("oldest"), F.max(time).alias("newest"))
    events = _aggregate(log, source.log_table, erasure, *bounds)
    letters = _aggregate(log, source.dead_letters_table, erasure)
    arrivals = list[Arrival]()
    ranges = erasures.arrival_ranges(erasure.added)
    for arrival in log.timeline(ranges[0][0] - 1, ranges[-1][1] - 1):
        if not any(start <= arrival.arrival < end for start, end in ranges):
            continue
        new, dead = (found.get(arrival.arrival, _NONE) for found in (events, letters))
        oldest = [t for t in (arrival.min_event_time, new["oldest"]) if t is not None]
        newest = [t for t in (arrival.max_event_time, new["newest"]) if t is not None]
        arrivals.append(
            replace(
                arrival,
                rows=arrival.rows + new["rows"],
                dead_letters=arrival.dead_letters + dead["rows"],
                min_event_time=min(oldest, default=None),
                max_event_time=max(newest, default=None),
            )
        )
    table, condition = source.timeline_table, erasures.arrival_condition(ranges)
    warehouse.replace(timeline_rows(arrivals), table, condition, erasure.app, 0)


def renew_results(log: Log, source: DerivedSource) -> None:
    """Record that a chain of final windows has read its asset's results as they are now.

    Otherwise, the chain's next ingest would refuse the windows that the erasure has recomputed.
    """
    chain, last = source.derivation, log.last()
    if not isinstance(chain, Chain) or chain.rows != "final" or last is None:
        return
    warehouse, step = log.warehouse, Step.of_position(last.position)
    if step.results is None:
        return
    base = Log(warehouse, chain.asset.source)
    end = chain.settled_end(base.timeline(step.arrival - 1, step.arrival)[0].after)
    released = list[int]()
    if chain.asset.checks:
        found = warehouse.take(
            chain.asset.table, Equals("quality", RELEASED), columns=["window_end"]
        )
        released = to_micros(found["window_end"])
    asset = Asset(warehouse, chain.asset)
    published = asset.state.at(asset.published_commit_number())
    taken = replace(
        step.results,
        commit=published.commit_number,
        run=published.run,
        released=0 if end is None else sum(each <= end for each in released),
    )
    if taken == step.results:
        return
    renewed = replace(last, position=replace(step, results=taken).to_position())
    condition = erasures.arrival_condition(erasures.arrival_ranges([last.arrival]))
    app = f"results/{uuid4().hex}"
    warehouse.replace(timeline_rows([renewed]), source.timeline_table, condition, app, 0)


def _aggregate(log: Log, table: str, erasure: Erasure, *more: Column) -> dict[int, Row]:
    """Return the number of rows that an erasure has added to a table, by arrival.

    Args:
        more: further aggregates over these rows.

    Returns:
        For each arrival, a row with the number in `rows`, and with the further aggregates.
    """
    bound = InRanges("arrival", erasures.arrival_ranges(erasure.added), instants=False)
    added = by_erasure.select_added(log.warehouse.read(table, bound), erasure.added)
    found = added.groupBy("arrival").agg(F.count("*").alias("rows"), *more).collect()
    return {row["arrival"]: row for row in found}
