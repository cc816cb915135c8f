"""Quarantine: the rows that failed an expectation of level `error` and are not published.

The table `<asset>_quarantine` has one row for each quarantined window and key. The row has the
values that would have been published, each expectation that the row fails, and the observed value.
The status of the row is `quarantined` or `discarded`. If a row of the window was published before,
the last good row stays published.

A quarantined window is validated again when it changes, and leaves the quarantine when it passes.
The user may `release` the window, which publishes it unchanged, or `discard` the window, which
leaves it unpublished. Each of these decisions holds until the values of the window change.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.compute.compare import same_values
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import ERROR
from tidemark.define.helper_columns import IS_DELETED
from tidemark.define.tidemark_columns import QUARANTINE_COLUMNS
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.quality.evidence import UNPUBLISHED, Batch
from tidemark.quality.gx import ROW
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.conditions import window_starts_in
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges, starts_within
from tidemark.store.committers.values import Merge
from tidemark.store.integrity import vouching
from tidemark.store.key_choice import KeyChoice, select_keys
from tidemark.store.lineage import demand_current_asset
from tidemark.store.log_rewrite import wait_for_rewrite
from tidemark.store.rows import Rows, drop_deleted, to_frame
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

RELEASED = "released"
QUARANTINED = "quarantined"
DISCARDED = "discarded"


@dataclass(frozen=True)
class _QuarantineChanges:
    """The changes of the quarantine that the failing rows of a commit cause.

    Args:
        quarantined: the number of rows to quarantine.
        released: the `ROW` numbers of the rows that the user has released with the same values.
        last_good_rows: the published rows that stay in place of quarantined rows when a commit
            replaces the rows of ranges; None if there are none.
        changes: the rows that enter the quarantine. For a commit that merges rows, also the rows
            that leave the quarantine, with `IS_DELETED`.
    """

    quarantined: int = 0
    released: list[int] = field(default_factory=list[int])
    last_good_rows: DataFrame | None = None
    changes: Rows | None = None


_NOT_KEPT = ("quality", IS_DELETED, *UNPUBLISHED)
"""Columns of validated rows that are not stored in the quarantine table."""


@dataclass(frozen=True)
class Choice:
    """A selection of quarantined windows that start in [start, end) and have these keys.

    Args:
        start, end: instants in microseconds; None means no bound.
        keys: the chosen value of each key, as text; None chooses a null key. A key that is not
            named may have any value.
    """

    start: int | None = None
    end: int | None = None
    keys: KeyChoice = field(default_factory=dict[str, str | None])

    def check_keys(self, definition: Definition) -> None:
        for key in self.keys:
            if key not in definition.keys:
                available = ", ".join(definition.keys) or "none"
                raise DefinitionError(
                    f"Asset '{definition.name}' has no key '{key}'; its keys: {available}."
                )


def create_table(warehouse: Warehouse, definition: Definition, rows: Rows) -> None:
    if warehouse.has_table(definition.quarantine_table):
        return
    quarantine_columns: dict[str, Column] = {}
    for name, kind in QUARANTINE_COLUMNS.items():
        quarantine_columns[name] = F.lit(None).cast(kind)
    kept_rows = to_frame(warehouse.spark, rows).drop(*_NOT_KEPT)
    column_rows = kept_rows.withColumns(quarantine_columns)
    comment = f"Windows of {definition.name} that failed an expectation"
    warehouse.ensure_table(definition.quarantine_table, column_rows, comment)


def is_empty(batch: Batch) -> bool:
    """Return whether the quarantine contains no window that a commit can change."""
    in_ranges = window_starts_in(batch.find_ranges())
    return not batch.asset.warehouse.load_rows(batch.transform.quarantine_table, in_ranges).num_rows


def compute_changes(batch: Batch, validated: DataFrame) -> _QuarantineChanges:
    """Return the changes of the quarantine that a commit's validated rows cause.

    Args:
        validated: the rows, with `ROW`, `failed_expectations`, `IS_DELETED`, and `_bad`, which is
            true for rows to quarantine.
    """
    transform = batch.transform
    commit_info = batch.commit_info
    quarantined_rows = batch.quarantined_rows()
    is_small = batch.few
    failed_rows = validated.where("_bad")
    values = [*transform.aggregates, "events", "late_events"]

    def find_unchanged(stored: DataFrame) -> list[int]:
        """Return the `ROW` numbers of the failed rows that have the values of stored rows."""
        has_same_values = _to_struct("r", values).eqNullSafe(_to_struct("o", values))
        is_same = batch.same_window("r", "o") & has_same_values
        unchanged = failed_rows.alias("r").join(stored.alias("o"), is_same, "left_semi")
        return [row[0] for row in unchanged.select(ROW).collect()]

    released = find_unchanged(batch.published_rows().where(F.col("quality") == RELEASED))
    discarded = find_unchanged(quarantined_rows.where(F.col("quarantine_status") == DISCARDED))
    if released:
        failed_rows = failed_rows.where(~F.col(ROW).isin(released))
    is_discarded = F.lit(False)
    if discarded:
        is_discarded = F.col(ROW).isin(discarded)
    status = F.when(is_discarded, DISCARDED).otherwise(QUARANTINED)
    columns: list[str | Column] = []
    for name in validated.columns:
        if name not in _NOT_KEPT and name != "_bad":
            columns.append(name)
    columns.append(status.alias("quarantine_status"))
    columns.append(F.lit(commit_info.run).alias("quarantine_run"))
    one_of_each = failed_rows.dropDuplicates(transform.by_window)
    rows = batch.scratch.materialize(one_of_each.select(columns), few=is_small)
    count = batch.asset.warehouse.count_windows(rows)
    quarantined = to_frame(validated.sparkSession, rows)
    if commit_info.replaced_ranges is not None:
        last_good_rows = None
        if count:
            published = batch.published_rows().alias("p")
            is_same = batch.same_window("p", "r")
            last_good_rows = published.join(quarantined.alias("r"), is_same, "left_semi")
        return _QuarantineChanges(count, released, last_good_rows, rows)
    publishable = validated.where(~F.col("_bad") | F.col(ROW).isin(released)).alias("m")
    is_same = batch.same_window("h", "m")
    leaving_rows = quarantined_rows.alias("h").join(publishable, is_same, "left_semi")
    entering_rows = quarantined.withColumn(IS_DELETED, F.lit(False))
    changed_rows = entering_rows.unionByName(leaving_rows.withColumn(IS_DELETED, F.lit(True)))
    changes = batch.scratch.materialize(changed_rows, few=is_small)
    return _QuarantineChanges(count, released, None, changes)


def commit_changes(asset: Asset, commit_info: CommitInfo, changes: Rows) -> None:
    """Apply a commit's changes to the quarantine table; a repeated call has no effect."""
    quarantine_table = asset.transform.quarantine_table
    warehouse = asset.warehouse
    ranges = commit_info.overwritten_ranges
    if ranges is not None:
        warehouse.replace_rows(
            drop_deleted(changes),
            quarantine_table,
            starts_within(ranges),
            asset.commit_app,
            commit_info.commit_number,
            epoch=asset.start_epoch,
        )
    elif isinstance(changes, DataFrame) or changes.num_rows:
        merge = Merge(
            on=asset.transform.by_window, delete=f"s.{IS_DELETED}", insert=f"NOT s.{IS_DELETED}"
        )
        warehouse.merge_rows(
            changes,
            quarantine_table,
            merge,
            asset.commit_app,
            commit_info.commit_number,
            epoch=asset.start_epoch,
        )


def read_windows(
    warehouse: Warehouse, definition: Definition, choice: Choice | None = None
) -> DataFrame:
    """Return the quarantined and discarded windows that start in the chosen range.

    The keys of `choice` are ignored. Without a choice, return all of these windows.

    Raises:
        DataError: the asset has no quarantine table.
    """
    choice_or_all = choice or Choice()
    if not warehouse.has_table(definition.quarantine_table):
        raise DataError(
            f"'{definition.name}' has no quarantine, because none of its rows has been validated. "
            "Add expectations to the asset if it has none, and run it."
        )
    rows = warehouse.read_frame(definition.quarantine_table)
    if choice_or_all.start is not None:
        rows = rows.where(f"window_start >= timestamp_micros({choice_or_all.start})")
    if choice_or_all.end is not None:
        rows = rows.where(f"window_start < timestamp_micros({choice_or_all.end})")
    return rows


def release_windows(warehouse: Warehouse, definition: Definition, choice: Choice) -> list[int]:
    """Publish quarantined windows unchanged, with the quality `released`. Return their starts in
    microseconds.

    If a run changes a window in the meantime, the result of that run prevails. The published table
    is opened before the quarantined rows are read. If a run publishes after that, the rows are read
    again.

    Raises:
        DataError: none of the chosen windows is quarantined.
        StaleError: the asset is stale, so its rows may have other keys.
        ConflictError: the commit that quarantined a chosen window is not completely published. The
            run that publishes this commit might delete the released rows again.
    """
    wait_for_rewrite(warehouse, definition.source)
    asset = Asset(warehouse, definition)
    column_names = warehouse.read_schema(definition.published_table).names
    demand_current_asset(warehouse, definition, asset.state.read_last_commit())
    rows, starts = _read_chosen(warehouse, definition, choice)

    def read_held_rows() -> pa.Table:
        nonlocal rows, starts
        rows, starts = _read_chosen(warehouse, definition, choice)
        _check_published(asset, rows)
        released = pa.array([RELEASED] * rows.num_rows, pa.string())
        return rows.append_column("quality", released).select(column_names)

    update_older = Merge(on=definition.by_window, update="t.commit_number < s.commit_number")
    warehouse.merge_if(
        read_held_rows,
        definition.published_table,
        update_older,
        asset.commit_app,
        asset.start_epoch,
    )
    delete_same = Merge(
        on=definition.by_window,
        delete="t.commit_number = s.commit_number",
        update=None,
        insert=None,
    )
    # If the published table loses its commit, these windows must not be missing from both tables.
    warehouse.newest_version(definition.published_table)
    vouches = vouching.vouched_versions(warehouse, asset.commit_app, [definition.published_table])
    warehouse.merge_rows(rows, definition.quarantine_table, delete_same, vouches=vouches)
    return starts


def discard_windows(warehouse: Warehouse, definition: Definition, choice: Choice) -> list[int]:
    """Keep quarantined windows unpublished until their values change.

    Return their starts in microseconds.

    Raises:
        DataError: none of the chosen windows is quarantined.
        StaleError: the asset is stale, so its rows may have other keys.
    """
    wait_for_rewrite(warehouse, definition.source)
    demand_current_asset(warehouse, definition, State(warehouse, definition).read_last_commit())
    rows, starts = _read_chosen(warehouse, definition, choice)
    mark_discarded = Merge(
        on=definition.by_window,
        update="t.commit_number = s.commit_number",
        insert=None,
        only={"quarantine_status": f"'{DISCARDED}'"},
    )
    warehouse.merge_rows(rows, definition.quarantine_table, mark_discarded)
    return starts


def read_computed(
    warehouse: Warehouse, definition: Definition, ranges: Ranges, keys: Sequence[str] | None = None
) -> DataFrame:
    """Return the newest computed row of each window that starts in some ranges.

    This is the quarantined row if there is one, else the published row.

    Args:
        keys: the keys of the stored rows, if an earlier definition of the asset had other keys.
    """
    bound = window_starts_in(ranges)
    published = warehouse.read_frame(definition.published_table, bound)
    if not warehouse.has_table(definition.quarantine_table):
        return published
    quarantined = warehouse.read_frame(definition.quarantine_table, bound)
    identity = definition.by_window
    if keys is not None:
        identity = ["window_start", "window_end", *keys]
    same = same_values(identity, "p", "w")
    good = published.alias("p").join(quarantined.alias("w"), same, "left_anti")
    return good.unionByName(quarantined.drop(*QUARANTINE_COLUMNS), allowMissingColumns=True)


class QuarantineCounts(NamedTuple):
    """The number of rows in the quarantine, in total and by each expectation that they fail."""

    rows: int
    by_expectation: dict[str, int]


def count_windows(
    warehouse: Warehouse, definition: Definition, ranges: Ranges = ALL_WINDOWS
) -> QuarantineCounts:
    """Count the quarantined and discarded windows that start in some ranges."""
    if not warehouse.has_table(definition.quarantine_table):
        return QuarantineCounts(0, {})
    rows = warehouse.load_rows(definition.quarantine_table, window_starts_in(ranges))
    counts: Counter[str] = Counter()
    for failures in rows["failed_expectations"].to_pylist():
        errors = [failure for failure in failures if failure["level"] == ERROR]
        counts.update({failure["expectation"] for failure in errors})
    return QuarantineCounts(rows.num_rows, dict(counts))


def _read_chosen(
    warehouse: Warehouse, definition: Definition, choice: Choice
) -> tuple[pa.Table, list[int]]:
    """Return the chosen rows with status `quarantined`, and their window starts in microseconds.

    Raises:
        DataError: no such rows exist.
    """
    choice.check_keys(definition)
    rows = fetch_dataframe(
        read_windows(warehouse, definition, choice).where(F.col("quarantine_status") == QUARANTINED)
    )
    rows = select_keys(rows, choice.keys, definition.name)
    if not rows.num_rows:
        raise DataError(
            f"No such window of '{definition.name}' is quarantined: `tidemark quarantine list "
            f"{definition.name}` shows those that are."
        )
    return rows, sorted(rows["window_start"].cast(pa.int64()).to_pylist())


def _check_published(asset: Asset, rows: pa.Table) -> None:
    # The rows were read before this check. Commits that were published then are still published.
    published_commit = asset.published_commit_number()
    commit_numbers = rows["commit_number"].to_pylist()
    unpublished_rows = sum(number > published_commit for number in commit_numbers)
    if unpublished_rows:
        name = asset.transform.name
        raise ConflictError(
            f"A run of '{name}' is publishing {unpublished_rows:,} of these windows. Try again "
            f"when it finishes. If it was killed, `tidemark run {name}` completes it."
        )


def _to_struct(rows: str, columns: list[str]) -> Column:
    return F.struct([F.col(f"{rows}.{name}") for name in columns])
