"""Compare the definition in the code with the definition that produced an asset's tables.

The commits of the tables record the parts of their definition, and the parts are compared. To find
the windows that would change, the new definition is computed from the event log in one bounded
pass, over the arrivals through which the published table is complete. The result is compared with
the published rows. Only temporary tables are written.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionError
from tidemark.compute.compare import keys_as_json
from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.compute.windowing import check_analysis
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import name_helper
from tidemark.define.identity import parts
from tidemark.define.identity.parts import AGGREGATE, Change, Effect
from tidemark.define.tidemark_columns import QUARANTINE_COLUMNS
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.quality import quarantine
from tidemark.run import takeover
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.ranges import Ranges, range_between
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import compare_rows, read_unchanged, recompute_ranges

EFFECT_TEXTS = {
    Effect.NONE: "no window is recomputed; later runs validate their rows with it",
    Effect.FORWARD: "runs continue, and use it for new events; `tidemark rebuild {asset}` "
    "also applies it to earlier windows",
    Effect.REBUILD: "runs can't continue from the existing tables; `tidemark rebuild {asset}` "
    "builds new ones",
}
"""The effect of a change on the runs of an asset, in plain words."""

NEW = "new"
REMOVED = "removed"
CHANGED = "changed"
_KINDS = {"missing": NEW, "extra": REMOVED, "value": CHANGED}
_KEYS = name_helper("keys")
_BY = ["window_start", "window_end", _KEYS]
_VALIDATION_COLUMNS = ("quality", *QUARANTINE_COLUMNS)
_NOT_COMPARED = ("as_of", "commit_number", *_VALIDATION_COLUMNS)


@dataclass(frozen=True)
class _Value:
    """A value that would change, or a row that would appear or disappear.

    Args:
        kind: `changed` for a value; `new` or `removed` for a row.
        window_start: the start of the window, as ISO 8601 in UTC.
        keys: the keys of the row, with the names in the definition that produces the row.
        column: the column that changes; None for a row.
        before, after: the two values, as text; None for a row.
    """

    kind: str
    window_start: str
    keys: dict[str, Any]
    column: str | None
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Changes:
    """The differences between two definitions of an asset, and the values that would change.

    Args:
        differences: the parts of the definition that differ.
        effect: the combined effect of the differences.
        earlier_through: the last arrival that an earlier definition counted, if windows that it
            computed still exist; None if the definition of the newest commit computed all windows.
        as_of: the arrival through which the results of both definitions were compared.
        windows: the number of compared rows, including rows that only one of the definitions
            produces; 0 if no comparison was needed.
        rows: the numbers of rows that would appear (`new`), disappear (`removed`) or change
            (`changed`).
        columns: the number of values that would change, by column; None for a column that is added
            or removed or changes its type.
        earliest, latest: the first and the last window start among the rows that would differ.
        examples: the first values and rows that would change.
    """

    asset: str
    differences: list[Change]
    effect: Effect
    earlier_through: int | None
    as_of: int
    windows: int = 0
    rows: dict[str, int] = field(default_factory=dict[str, int])
    columns: dict[str, int | None] = field(default_factory=dict[str, int | None])
    earliest: str | None = None
    latest: str | None = None
    examples: list[_Value] = field(default_factory=list[_Value])

    @property
    def has_same_definition(self) -> bool:
        """True if the definition in the code produced all rows of the tables."""
        return not self.differences and self.earlier_through is None

    @property
    def row_counts_text(self) -> str:
        """The numbers of rows that would appear, disappear or change, as text."""
        return ", ".join(f"{count:,} {kind}" for kind, count in self.rows.items()) or "none"


def compute_changes(
    warehouse: Warehouse,
    definition: Definition,
    start: int | None = None,
    end: int | None = None,
    *,
    max_listed: int = 20,
) -> Changes:
    """Return the changes that the definition would make to windows that start in [start, end).

    Args:
        start, end: instants in microseconds; None means no bound.
        max_listed: the maximum number of examples.

    Raises:
        DefinitionError: the asset is a roll-up.
        DataError: the asset has not run yet.
    """
    asset = _load_asset(warehouse, definition)
    ranges = range_between(start, end)
    few = asset.has_few_rows()
    with temp_tables(warehouse) as scratch, warehouse.use_planning(Planning.for_size(few)):
        published, commit = read_unchanged(
            asset,
            lambda commit: scratch.materialize_frame(
                _read_computed(asset, commit, ranges), few=few
            ),
        )
        changes = _find_differences(asset, commit)
        if changes.effect is Effect.NONE and changes.earlier_through is None:
            return changes
        check_analysis(asset.log, asset.counting_transform)
        return _add_changed_windows(
            asset, commit, changes, published, ranges, scratch, max_listed, few=few
        )


def find_differences(warehouse: Warehouse, definition: Definition) -> Changes:
    """Compare the definition in the code with the one that produced the tables.

    No windows are computed, so the result has no numbers of rows and values, and no examples.

    Raises:
        DefinitionError: the asset is a roll-up.
        DataError: the asset has not run yet.
    """
    asset = _load_asset(warehouse, definition)
    return _find_differences(asset, asset.state.read_commit(asset.published_commit_number()))


def _load_asset(warehouse: Warehouse, definition: Definition) -> Asset:
    """Return the asset, if it has run and counts events itself; otherwise raise an error."""
    asset = Asset(warehouse, definition)
    if asset.rolls_up:
        raise DefinitionError(
            f"'{definition.name}' is a roll-up of '{definition.rolled_up_name}': compare the "
            "definition of "
            f"'{definition.rolled_up_name}' instead."
        )
    if asset.published_commit_number() < 0:
        raise DataError(f"'{definition.name}' has not run yet: there is nothing to compare with.")
    return asset


def _find_differences(asset: Asset, commit: StateCommit) -> Changes:
    name = asset.transform.name
    differences = takeover.find_changes(asset, commit)
    return Changes(
        asset=name,
        differences=differences,
        effect=parts.combined_effect(differences),
        earlier_through=_find_earlier_arrival(asset, commit),
        as_of=commit.after.at.arrival,
    )


def _find_earlier_arrival(asset: Asset, commit: StateCommit) -> int | None:
    """Return the last arrival that an earlier definition counted, if any of its windows remain.

    Return None if the definition of this commit computed all existing windows.
    """
    first = asset.state.read_commit(commit.defined)
    if first.commit_number <= 0 or first.replaces_all:
        return None
    for later in asset.state.read_commits_after(first.commit_number):
        if later.replaces_all and later.commit_number <= commit.commit_number:
            return None
    return first.before.at.arrival


def _read_computed(asset: Asset, commit: StateCommit, ranges: Ranges) -> DataFrame:
    """Return the newest computed rows of an asset, whether published or quarantined.

    The rows have the columns of the definition that produced them, and their keys as JSON.
    """
    columns = asset.warehouse.read_schema(asset.transform.published_table).names
    keys = _find_keys(asset, commit, columns)
    rows = quarantine.read_computed(asset.warehouse, asset.transform, ranges, keys)
    return rows.withColumn(_KEYS, keys_as_json(keys))


def _find_keys(asset: Asset, commit: StateCommit, columns: Sequence[str]) -> list[str]:
    """Return the keys among the columns of a published table.

    The keys are the columns between `window_end` and `events` that are not an aggregate of the
    definition that produced the table.
    """
    recorded_parts = asset.state.recorded_parts(commit)
    own_columns = columns[columns.index("window_end") + 1 : columns.index("events")]
    return [name for name in own_columns if f"{AGGREGATE}{name}" not in recorded_parts]


def _add_changed_windows(
    asset: Asset,
    commit: StateCommit,
    changes: Changes,
    published: DataFrame,
    ranges: Ranges,
    scratch: TempTables,
    max_listed: int,
    *,
    few: bool,
) -> Changes:
    transform = asset.transform
    keys = keys_as_json(transform.keys)
    _, streamed, complete = recompute_ranges(asset, commit, ranges, scratch, few=few)
    streamed = streamed.withColumn(_KEYS, keys)
    complete = complete.withColumn(_KEYS, keys)
    compared = _list_comparable(published, streamed)
    rows = compare_rows(published, streamed, complete, _BY, compared, F.col(f"key.{_KEYS}"))
    rows = scratch.materialize_frame(rows, few=few)
    windows = rows.groupBy("window_start", "keys").agg(F.first("kind").alias("kind"))
    window_counts = _collect_counts(windows.groupBy("kind").count())
    changed = rows.where(F.col("kind").isin(list(_KINDS)))
    value_counts = _collect_counts(changed.where("column IS NOT NULL").groupBy("column").count())
    earliest, newest = changed.agg(F.min("window_start"), F.max("window_start")).collect()[0]
    row_counts: dict[str, int] = {}
    for kind, word in _KINDS.items():
        if kind in window_counts:
            row_counts[word] = window_counts[kind]
    column_counts: dict[str, int | None] = {}
    column_counts |= {name: value_counts[name] for name in sorted(value_counts)}
    for name in _list_aggregates(transform, changes):
        if name not in compared:
            column_counts[name] = None
    return replace(
        changes,
        windows=sum(window_counts.values()),
        rows=row_counts,
        columns=column_counts,
        earliest=earliest,
        latest=newest,
        examples=_list_examples(changed, max_listed),
    )


def _list_comparable(published: DataFrame, computed: DataFrame) -> list[str]:
    """Return the columns that both definitions have with the same type, except the identity."""
    published_types = {f.name: f.dataType for f in published.schema.fields}
    comparable: list[str] = []
    for column in computed.schema.fields:
        is_compared = column.name not in _BY and column.name not in _NOT_COMPARED
        if is_compared and published_types.get(column.name) == column.dataType:
            comparable.append(column.name)
    return comparable


def _collect_counts(counts: DataFrame) -> dict[str, int]:
    """Return the second column of some rows by the first."""
    return {row[0]: int(row[1]) for row in counts.collect()}


def _list_examples(changed: DataFrame, max_listed: int) -> list[_Value]:
    first_rows = changed.orderBy("window_start", "keys", "column").limit(max_listed)
    examples: list[_Value] = []
    for row in fetch_dataframe(first_rows).to_pylist():
        example = _Value(
            kind=_KINDS[row["kind"]],
            window_start=row["window_start"],
            keys=json.loads(row["keys"]),
            column=row["column"],
            before=row["left"],
            after=row["right"],
        )
        examples.append(example)
    return examples


def _list_aggregates(definition: Definition, changes: Changes) -> list[str]:
    """Return the aggregates of the definition in the code, and those that differ from it."""
    names = list(definition.aggregates)
    for change in changes.differences:
        if change.part.startswith(AGGREGATE):
            names.append(change.part.removeprefix(AGGREGATE))
    return names
