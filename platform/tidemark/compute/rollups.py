"""Get the partials of an asset's windows, either from the state or recounted from the event log.

The partials of a transform already have the transform's windows. A roll-up has no partials:
`assign_windows` assigns the partials of its base to the roll-up's windows. A run of a roll-up
processes at once all commits of the base since the roll-up's last run, and publishes the windows
that have fired since then. If the base replaced windows, the run replaces the roll-up's windows
that contain them. All published rows are a function of the base's state, so a killed run is simply
repeated.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.affected.final_windows import find_changeable_range
from tidemark.compute.windowing import count_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, SLOT, VERDICT
from tidemark.define.rollup import RollUp, base_transform
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import window_starts_in
from tidemark.store.commits.coverage import BackfilledRange, Coverage
from tidemark.store.commits.kinds import Following
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges, merge_ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.state import count_by_verdict, counted_column
from tidemark.store.warehouse import Warehouse


def plan_rollup(asset: Asset) -> tuple[Following, Counter[int]] | None:
    """Return the record of a roll-up's next commit, and the number of its new events by lateness.

    Returns:
        None if the base has committed nothing since the last run.

    Raises:
        DataError: the base has not run yet.
    """
    warehouse = asset.warehouse
    transform = asset.transform
    assert isinstance(transform, RollUp)
    started = time.time_ns() // 1000
    base = transform.base
    if asset.state.table_id() is None:
        raise DataError(
            f"'{transform.name}' is a roll-up of '{base.name}', which has not run yet: run "
            f"`tidemark run {base.name}` first."
        )
    published_number = asset.published_commit_number()
    commits = asset.state.read_commits_after(published_number)
    if not commits:
        return None
    coverage_before = find_rollup_coverage(transform, commits[0].before)
    coverage_after = find_rollup_coverage(transform, commits[-1].after)
    ranges = _find_replaced_windows(transform, coverage_before, commits)
    if published_number < 0 and warehouse.has_table(transform.published_table):
        # The existing rows are from a base that was dropped and recreated, or from an earlier
        # definition of the roll-up (`store.commits.rollup_generation`).
        ranges = ()
    commit_info = Following(
        run=uuid.uuid4().hex,
        started=started,
        commit_number=commits[-1].commit_number,
        before=coverage_before,
        after=coverage_after,
        ranges=ranges,
        base_run=commits[-1].run,
    )
    new_partials = asset.state.read_partials().where(
        (F.col("commit_number") > published_number)
        & (F.col("commit_number") <= commit_info.commit_number)
    )
    assigned = assign_windows(warehouse, transform, new_partials.where(ADMITTED), coverage_after)
    return commit_info, count_by_verdict(assigned, counted_column(transform))


def assign_windows_within(
    asset: Asset,
    rows_of: Callable[[Ranges], DataFrame],
    partials_coverage: Coverage,
    ranges: Ranges,
) -> DataFrame:
    """Return the partials of an asset's windows that start in one of the ranges.

    Args:
        rows_of: a function that returns the partials of the windows that start in given ranges;
            for a roll-up, the windows of its base.
        partials_coverage: the coverage of these partials.
    """
    rows = rows_of(find_base_ranges(asset.transform, ranges))
    placed_rows = assign_windows(asset.warehouse, asset.transform, rows, partials_coverage)
    return placed_rows.where(window_starts_in(ranges).to_sql())


def recount_partials(
    warehouse: Warehouse,
    definition: Definition,
    partials_coverage: Coverage,
    ranges: Ranges,
    *,
    complete: bool = False,
) -> DataFrame:
    """Return partials recounted from the log, independent of the state.

    The partials of a roll-up have the windows of its base.

    Args:
        complete: true if too-late events count.
    """
    ranges = find_base_ranges(definition, ranges)
    counting = replace(
        base_transform(definition), aggregates=definition.aggregates, expectations=()
    )
    log = Log(warehouse, definition.source)
    return count_scope(
        log, counting, Scope.from_coverage(partials_coverage, ranges, complete=complete)
    )


def find_base_ranges(definition: Definition, ranges: Ranges) -> Ranges:
    """Return ranges of base window starts, given ranges of roll-up window starts.

    The result contains the starts of all base windows inside the given roll-up windows. For a
    transform, return the ranges unchanged.
    """
    if not isinstance(definition, RollUp):
        return ranges
    return tuple(
        (start, min(end + definition.window.max_extent, INFINITY)) for start, end in ranges
    )


def find_holding_ranges(definition: Definition, ranges: Ranges) -> Ranges:
    """Return ranges of roll-up window starts, given ranges of base window starts.

    The result contains the starts of all roll-up windows that contain one of the given base
    windows. For a transform, return the ranges unchanged.
    """
    if not isinstance(definition, RollUp):
        return ranges
    reach = definition.window.max_extent - 1
    return tuple((max(start - reach, BEGINNING), end) for start, end in ranges)


def assign_windows(
    warehouse: Warehouse, definition: Definition, rows: DataFrame, rollup_coverage: Coverage
) -> DataFrame:
    """Return partials with the transform's own windows.

    For a roll-up, the result is the base's admitted partials, with their lateness in the roll-up's
    windows. Each late partial belongs to one arrival, so the watermark before its arrival is known.

    Args:
        rollup_coverage: the coverage of a roll-up. Late partials of arrivals beyond it are left
            out.
    """
    if not isinstance(definition, RollUp):
        return rows
    timeline = warehouse.read_frame(definition.source.timeline_table)
    next_arrival = (F.col("arrival") + 1).alias("_came")
    watermarks_before = timeline.select(next_arrival, F.col("watermark_before").alias("_before"))
    punctual = F.col(VERDICT) == classification.ON_TIME
    admitted = rows.where(ADMITTED).withColumnsRenamed(
        {"window_start": "_window_start", "window_end": "_window_end"}
    )
    assigned = definition.window.assign_windows(admitted, "_window_start")
    assigned = assigned.drop("_window_start", "_window_end")
    late = ~punctual & (F.col(SLOT) == F.col("_came"))
    current_verdict = classification.classify_lateness(
        F.col("window_end"), F.col("_before"), definition.allowed_lateness
    )
    verdict = F.when(punctual, F.col(VERDICT)).otherwise(current_verdict)
    slot = F.when(verdict == classification.ON_TIME, 0).otherwise(F.col(SLOT))
    is_covered = punctual | (F.col(SLOT) - 1 <= rollup_coverage.position_column("arrival"))
    partials = assigned.join(F.broadcast(watermarks_before), late, "left").where(is_covered)
    classified = partials.withColumns({VERDICT: verdict, SLOT: slot.cast("bigint")})
    return classified.drop("_came", "_before")


def find_coverage_after(definition: Definition, commit: StateCommit) -> Coverage:
    if isinstance(definition, RollUp):
        if commit.commit_number >= 0:
            return find_rollup_coverage(definition, commit.after)
        return Coverage()
    return commit.after


def find_rollup_coverage(transform: RollUp, base_coverage: Coverage) -> Coverage:
    """Return the coverage of a roll-up's windows.

    Each window is up to date through the same arrival as the least advanced base window in it.
    """
    # The last base window that starts in a range may end after the range.
    base_ranges = _merge_adjacent(base_coverage.covers)
    base_ranges += base_coverage.covers
    covers: list[BackfilledRange] = []
    for covered in base_ranges:
        last_end = transform.base.window.last_window_end(covered.end)
        covers.append(replace(covered, end=last_end))
    return Coverage(base_coverage.at, tuple(covers), whole=True)


def _merge_adjacent(covers: Sequence[BackfilledRange]) -> list[BackfilledRange]:
    """Return the ranges, with adjacent ones merged.

    A merged range is up to date through the same arrival as the least advanced range in it.
    """
    merged: list[BackfilledRange] = []
    for covered in sorted(covers, key=attrgetter("start")):
        if merged and merged[-1].end == covered.start:
            previous = merged.pop()
            position = min(previous.at, covered.at, key=attrgetter("arrival"))
            covered = BackfilledRange(previous.start, covered.end, position)
        merged.append(covered)
    return merged


def _find_replaced_windows(
    transform: RollUp, coverage_before: Coverage, commits: Sequence[StateCommit]
) -> Ranges | None:
    """Return the ranges of the starts of the windows that a roll-up's next commit replaces.

    The commit replaces the windows that contain a replaced window of the base, and the windows that
    may have fired since the roll-up's last run. Return None if the base has replaced no window, and
    `ALL_WINDOWS` if the commit replaces all windows.
    """
    replacing = [c.recomputed_ranges for c in commits if c.recomputed_ranges is not None]
    if not replacing:
        return None
    fired = find_changeable_range(transform, coverage_before)
    if fired == ALL_WINDOWS or ALL_WINDOWS in replacing:
        return ALL_WINDOWS
    replaced = list(fired)
    for ranges in replacing:
        replaced += find_holding_ranges(transform, ranges)
    return merge_ranges(replaced)
