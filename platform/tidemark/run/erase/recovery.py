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
from tidemark.define.tables import Role, TableName
from tidemark.engine.process import ProgressCallback
from tidemark.quality import results
from tidemark.quality.quarantine import RELEASED
from tidemark.run import runner
from tidemark.run.erase.deletion import count_erasure, remove_copies
from tidemark.run.erase.search import list_asset_tables
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


def recompute_windows(
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
    if warehouse.transaction_version(log.source.log_table, erasure.commit_app) < 0:
        # If its process is only paused, it can't delete the events any more.
        count_erasure(log)
        erasures.record_phase(warehouse, erasure, VOID)
        return False
    windowed_assets = dict[str, Definition]()
    rollups = list[Definition]()
    for definition in definitions:
        if definition.source.name != log.source.name:
            continue
        if definition.rolled_up_name is None:
            windowed_assets[definition.name] = definition
        else:
            rollups.append(definition)
    if erasure.changes_events:
        remove_copies(warehouse, log.source, list(windowed_assets.values()))
        pass_fail_point("fenced")
    _count_added(log, erasure)
    pass_fail_point("added")
    for name, ranges in erasure.windows.items():
        definition = windowed_assets.get(name)
        if definition is None or State(warehouse, definition).read_last_commit().commit_number < 0:
            _drop_remains(warehouse, name, erasure, is_defined=definition is not None)
            continue
        on_progress(f"recompute {name}")
        _recompute_asset(warehouse, definition, ranges)
        pass_fail_point("counted")
        for rollup in rollups:
            if rollup.rolled_up_name == name and warehouse.has_table(rollup.published_table):
                on_progress(f"recompute {rollup.name}")
                runner.incremental(warehouse, rollup)
                _remove_old_values(warehouse, rollup, ranges)
    # A chain that began after the deletion may have read windows from before the recomputation.
    count_erasure(log)
    return True


def _recompute_asset(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    runner.recompute_erased(warehouse, definition, ranges)
    _remove_old_values(warehouse, definition, ranges)


def _drop_remains(warehouse: Warehouse, name: str, erasure: Erasure, *, is_defined: bool) -> None:
    """Delete the tables that an interrupted drop of an asset has left.

    Do nothing if the asset has not run yet. The next run of the asset counts all events from the
    log.

    Args:
        is_defined: true if the asset is still defined.

    Raises:
        DataError: the asset is no longer defined, but has tables. None of them is deleted.
    """
    # The state table of a defined asset may be that of a run that has just begun.
    remains = list[TableName]()
    for table in list_asset_tables(warehouse, name):
        is_state_of_defined = is_defined and table.role is Role.STATE
        if not table.side and not is_state_of_defined:
            remains.append(table)
    if remains and not is_defined:
        raise DataError(
            f"An erasure of '{erasure.source}' was killed before the windows of '{name}' were "
            f"recomputed, and '{name}' is no longer defined. Define it again, or delete its tables "
            f"({', '.join(remains)})."
        )
    for table in remains:
        # An interrupted drop left the table behind.
        warehouse.drop_table(table)


def _remove_old_values(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> None:
    """Delete values that were computed with erased events, and that no run replaces.

    These are the published rows of windows that are now quarantined, and the values in results of
    checks before the recomputation.
    """
    asset = Asset(warehouse, definition)
    published_commit = asset.published_commit_number()
    if warehouse.has_table(definition.quarantine_table):
        columns = [*definition.by_window, "commit_number"]
        quarantined = warehouse.load_rows(definition.quarantine_table, columns=columns)
        # A quarantined window keeps its last good row, which was computed with the erased events.
        delete_earlier = Merge(
            on=definition.by_window,
            delete="t.commit_number < s.commit_number",
            update=None,
            insert=None,
        )
        if quarantined.num_rows:
            affected = _filter_by_ranges(quarantined, ranges, definition)
            warehouse.merge_rows(affected, definition.published_table, delete_earlier)
    results.delete_observations(asset, ranges, published_commit)


def _filter_by_ranges(quarantined: pa.Table, ranges: Ranges, definition: Definition) -> pa.Table:
    """Return the quarantined windows that start in one of the ranges.

    Without a range, or for a roll-up, return all quarantined windows.
    """
    if not ranges or definition.rolled_up_name is not None:
        return quarantined
    return quarantined.filter(InRanges("window_start", ranges).to_expression())


_NOTHING_ADDED: Mapping[str, Any] = {"rows": 0, "oldest": None, "newest": None}


def _count_added(log: Log, erasure: Erasure) -> None:
    """Update the timeline's counts and event time ranges for the rows that an erasure has added.

    Otherwise runs and joins would skip arrivals that had no events before. After an interruption,
    the function can be called again.
    """
    if not erasure.added:
        return
    warehouse = log.warehouse
    source = log.source
    event_time = F.unix_micros(F.col(f"`{source.event_time}`"))
    row_count = F.count("*").alias("rows")
    event_aggregates = [
        row_count,
        F.min(event_time).alias("oldest"),
        F.max(event_time).alias("newest"),
    ]
    events = _aggregate_added_rows(log, source.log_table, erasure, event_aggregates)
    letters = _aggregate_added_rows(log, source.dead_letters_table, erasure, [row_count])
    arrivals = list[Arrival]()
    ranges = erasures.arrival_ranges(erasure.added)
    for arrival in log.read_timeline(ranges[0][0] - 1, ranges[-1][1] - 1):
        if not any(start <= arrival.arrival < end for start, end in ranges):
            continue
        added_events = events.get(arrival.arrival, _NOTHING_ADDED)
        added_letters = letters.get(arrival.arrival, _NOTHING_ADDED)
        oldest = [arrival.min_event_time, added_events["oldest"]]
        newest = [arrival.max_event_time, added_events["newest"]]
        arrivals.append(
            replace(
                arrival,
                rows=arrival.rows + added_events["rows"],
                dead_letters=arrival.dead_letters + added_letters["rows"],
                min_event_time=min((time for time in oldest if time is not None), default=None),
                max_event_time=max((time for time in newest if time is not None), default=None),
            )
        )
    condition = erasures.arrival_condition(ranges)
    rows = timeline_rows(arrivals)
    warehouse.replace_rows(rows, source.timeline_table, condition, erasure.commit_app, 0)


def renew_results(log: Log, source: DerivedSource) -> None:
    """Update the timeline of a chain of final windows after an erasure recomputed its asset.

    The newest arrival then records that the chain has read the asset's results as they are now.
    Otherwise, the chain's next ingest would refuse the windows that the erasure has recomputed. Do
    nothing for other sources, and for a chain without arrivals.

    Args:
        log: the event log of the chain.
        source: the chain.
    """
    warehouse = log.warehouse
    chain = source.derivation
    newest = log.find_last_arrival()
    if not isinstance(chain, Chain) or chain.rows != "final" or newest is None:
        return
    step = Step.of_position(newest.position)
    if step.results is None:
        return
    base_arrival = Log(warehouse, chain.asset.source).read_timeline(
        step.taken_arrival - 1, step.taken_arrival
    )[0]
    final_end = chain.settled_end(base_arrival.after)
    asset = Asset(warehouse, chain.asset)
    published = asset.state.read_commit(asset.published_commit_number())
    renewed_results = replace(
        step.results,
        commit=published.commit_number,
        run=published.run,
        released=_count_released_windows(asset, final_end),
    )
    if renewed_results == step.results:
        return
    renewed_step = replace(step, results=renewed_results)
    renewed_arrival = replace(newest, position=renewed_step.to_position())
    condition = erasures.arrival_condition(erasures.arrival_ranges([newest.arrival]))
    app = f"results/{uuid4().hex}"
    warehouse.replace_rows(
        timeline_rows([renewed_arrival]), source.timeline_table, condition, app, 0
    )


def _count_released_windows(asset: Asset, final_end: int | None) -> int:
    """Return how many windows that end at `final_end` or before were released from quarantine."""
    if not asset.transform.all_expectations or final_end is None:
        return 0
    released = asset.warehouse.load_rows(
        asset.transform.published_table, Equals("quality", RELEASED), columns=["window_end"]
    )
    return sum(window_end <= final_end for window_end in to_micros(released["window_end"]))


def _aggregate_added_rows(
    log: Log, table: str, erasure: Erasure, aggregates: Sequence[Column]
) -> dict[int, Row]:
    """Return aggregates over the rows that an erasure has added to a table, by arrival."""
    in_arrivals = InRanges("arrival", erasures.arrival_ranges(erasure.added), instants=False)
    added = by_erasure.select_added(log.warehouse.read_frame(table, in_arrivals), erasure.added)
    return {row["arrival"]: row for row in added.groupBy("arrival").agg(*aggregates).collect()}
