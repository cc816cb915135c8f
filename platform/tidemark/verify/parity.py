"""Parity: compare the published windows of an asset with a bounded recomputation.

A range of windows is recomputed from the event log in one bounded pass, independently of the stored
partials. The recomputation counts the arrivals through which the published table is complete. The
published and the recomputed rows are then compared.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute import rollups
from tidemark.compute.compare import iso_text, keys_as_json
from tidemark.compute.differences import find_differences, pair_rows
from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.compute.windowing import as_of, finish_windows
from tidemark.define import classification
from tidemark.define.aggregates.combiner import SLACK
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, VERDICT
from tidemark.engine.queries.planning import Planning
from tidemark.quality import quarantine
from tidemark.quality.quarantine import QuarantineCounts
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import window_starts_in
from tidemark.store.commits.ranges import Ranges, range_between
from tidemark.store.warehouse import Warehouse

_LATE_LOSS = "late_loss"
_T = TypeVar("_T")
_FACTS = ("events", "late_events", "revision", "timing", "final", "last_arrival")


@dataclass(frozen=True)
class Difference:
    """A row or a value in which the published table and the recomputation differ.

    Args:
        kind: `missing` (not published), `extra` (published, but not computed), `value` (other
            values), or `late_loss`. The last is expected after a correction or a complete backfill:
            the published value includes too-late events, and the computed one does not.
        window_start: the start of the window, as ISO 8601 in UTC.
        column: the column that differs, for `late_loss` and `value`; otherwise None.
        published, recomputed: the two values, as text.
    """

    kind: str
    window_start: str
    keys: dict[str, Any]
    column: str | None
    published: str | None
    recomputed: str | None


@dataclass(frozen=True)
class ParityReport:
    """How far the published windows of an asset equal their recomputation from the event log.

    Args:
        as_of: the newest arrival that the windows count. A window in a backfilled range may count
            later arrivals.
        windows: the number of rows compared.
        lost: the number of events that were too late for a window in the compared range, counted
            once for each such window. For sessions, windows outside of the range count, too.
        total: the number of differences.
        differences: the first differences.
        kinds: the number of differences by `Difference.kind`.
        quarantined: the number of compared rows that are quarantined instead of published.
        quarantined_by: the number of quarantined rows by the expectation that they fail. A row may
            fail several expectations.
    """

    asset: str
    as_of: int
    windows: int
    lost: int
    total: int
    differences: list[Difference]
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    quarantined: int = 0
    quarantined_by: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def is_equal(self) -> bool:
        return self.total == 0

    @property
    def unexplained_count(self) -> int:
        """The number of differences that too-late events do not explain."""
        return self.total - self.kinds.get(_LATE_LOSS, 0)


def check_parity(
    warehouse: Warehouse,
    definition: Definition,
    start: int | None = None,
    end: int | None = None,
    *,
    max_listed: int = 1000,
) -> ParityReport:
    """Compare the published windows that start in [start, end) with a bounded computation.

    Args:
        start, end: instants in microseconds; None means no bound.
        max_listed: the maximum number of differences to list.
    """
    ranges = range_between(start, end)
    asset = Asset(warehouse, definition)
    # If the source has never been ingested, its error is raised below.
    few = warehouse.has_table(definition.source.timeline_table) and asset.has_few_rows()
    with temp_tables(warehouse) as scratch, warehouse.use_planning(Planning.for_size(few)):

        def read_published(_: StateCommit) -> tuple[DataFrame, QuarantineCounts]:
            # Quarantined rows are compared too: an expectation rejected their values, but the
            # values must still be equal to the recomputed values.
            computed = quarantine.read_computed(warehouse, definition, ranges)
            rows = scratch.materialize_frame(computed, few=few)
            return rows, quarantine.count_windows(warehouse, definition, ranges)

        (published, quarantined), commit = read_unchanged(asset, read_published)
        stored, streamed, complete = recompute_ranges(asset, commit, ranges, scratch, few=few)
        columns = list(definition.aggregates)
        columns += _FACTS
        keys = keys_as_json(definition.keys, "key")
        rows = compare_rows(published, streamed, complete, definition.by_window, columns, keys)
        compared = scratch.materialize_frame(rows, few=few)
        differing = compared.where("kind IS NOT NULL").orderBy("window_start", "keys", "column")
        counted_kinds = differing.groupBy("kind").count().orderBy("kind").collect()
        kinds = {str(row[0]): int(row[1]) for row in counted_kinds}
        return ParityReport(
            asset=definition.name,
            as_of=rollups.find_coverage_after(definition, commit).at.arrival,
            windows=compared.select("window_start", "keys").distinct().count(),
            lost=_count_too_late(stored),
            total=sum(kinds.values()),
            differences=_list_differences(differing, max_listed),
            kinds=kinds,
            quarantined=quarantined.rows,
            quarantined_by=quarantined.by_expectation,
        )


def _count_too_late(partials: DataFrame) -> int:
    """Return the number of too-late events in some partials."""
    too_late = partials.where(F.col(VERDICT) == classification.TOO_LATE)
    (totals,) = too_late.agg(F.sum("events")).collect()
    return int(totals[0] or 0)


def _list_differences(differing: DataFrame, max_listed: int) -> list[Difference]:
    differences: list[Difference] = []
    for row in differing.limit(max_listed).collect():
        keys = json.loads(row["keys"])
        difference = Difference(
            row["kind"], row["window_start"], keys, row["column"], row["left"], row["right"]
        )
        differences.append(difference)
    return differences


def read_unchanged(asset: Asset, read: Callable[[StateCommit], _T]) -> tuple[_T, StateCommit]:
    """Call a function that reads an asset's tables. Return its result, and the newest commit.

    If a stream changes the tables in the meantime, the function is called again.

    Args:
        read: the function, which is called with the newest commit.
    """
    warehouse = asset.warehouse
    transform = asset.transform
    tables = (transform.published_table, transform.quarantine_table)
    while True:
        versions = [warehouse.newest_version(table) for table in tables]
        published = warehouse.transaction_version(transform.published_table, asset.commit_app)
        commit = asset.state.read_commit(max(asset.published_commit_number(), published))
        result = read(commit)
        if versions == [warehouse.newest_version(table) for table in tables]:
            return result, commit


def recompute_ranges(
    asset: Asset, commit: StateCommit, ranges: Ranges, scratch: TempTables, *, few: bool
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Recompute the windows that start in some ranges from the event log, as of a commit.

    Return their partials, their rows without too-late events, and their rows with too-late events.

    Args:
        few: true if the partials are known to fit in memory.
    """
    warehouse = asset.warehouse
    transform = asset.transform
    coverage = rollups.find_coverage_after(transform, commit)
    # A session may cross the bounds of a range, so sessions are recomputed from all events.
    bounds = () if transform.window.merges else ranges
    counted = rollups.recount_partials(warehouse, transform, coverage, bounds)
    stored = scratch.materialize_frame(counted, few=few)

    def compute_windows(partials: DataFrame) -> DataFrame:
        rows = rollups.assign_windows(warehouse, transform, partials, coverage)
        windows = finish_windows(rows, transform, asset.log, as_of(coverage))
        return windows.where(window_starts_in(ranges).to_sql())

    with_late_events = stored.withColumn(ADMITTED, F.col(VERDICT) <= classification.TOO_LATE)
    return stored, compute_windows(stored), compute_windows(with_late_events)


def compare_rows(
    published: DataFrame,
    streamed: DataFrame,
    complete: DataFrame,
    window_columns: Sequence[str],
    columns: Sequence[str],
    keys: Column,
) -> DataFrame:
    """Return one row for each difference, and one with a null `kind` for each row that agrees.

    The columns are those of `Difference`, with `left` and `right` for the two values.

    Args:
        published: the existing rows.
        streamed, complete: the expected rows from `finish_windows`, without and with too-late
            events.
        window_columns: the columns that identify a row.
        columns: the columns to compare.
        keys: an expression for the column `keys` of the result. It may refer to the struct `key`,
            which contains the columns of `window_columns`.
    """
    types = {f.name: f.dataType for f in published.schema.fields if f.name in columns}
    slack_columns = streamed.select(f"{SLACK}.*").columns
    stored_columns = list(window_columns)
    stored_columns += columns
    computed_columns = [*stored_columns, SLACK]
    paired = pair_rows(
        published.select(stored_columns), streamed.select(computed_columns), window_columns
    )
    complete_key = F.struct(list(window_columns)).alias("complete_key")
    with_late_events = complete.select(complete_key, F.struct(*columns, SLACK).alias("complete"))
    has_same_key = F.col("key").eqNullSafe(F.col("complete_key"))
    joined = paired.join(with_late_events, has_same_key, "left")

    is_published = F.col("left").isNotNull()
    is_computed = F.col("right").isNotNull()
    differences = find_differences(types, "left", "right", slack=slack_columns)
    differs = F.size(differences) > 0
    # If the row with too-late events is equal, late loss explains the difference.
    differences_with_late = find_differences(types, "left", "complete", slack=slack_columns)
    is_late_loss = F.col("complete").isNotNull() & (F.size(differences_with_late) == 0)
    kind = F.when(~is_published, "missing").when(is_late_loss & differs, _LATE_LOSS)
    kind = kind.when(~is_computed, "extra").when(differs, "value")
    # A whole row gives one entry without a column.
    is_whole = ~is_published | ~is_computed | ~differs
    no_column = F.array(F.lit(None).cast("struct<column:string,left:string,right:string>"))
    compared = joined.select(
        kind.alias("kind"),
        iso_text("key.window_start").alias("window_start"),
        keys.alias("keys"),
        F.explode(F.when(is_whole, no_column).otherwise(differences)).alias("d"),
    )
    return compared.select("kind", "window_start", "keys", "d.*")
