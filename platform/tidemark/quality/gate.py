"""The gate: validate the rows that a commit is about to publish, and quarantine the rows that fail.

The gate writes no tables except temporary ones. It returns the rows to publish, the changes of the
quarantine and the results, and the caller commits them.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.define.expectations.expectation import ERROR, Windowed
from tidemark.define.helper_columns import IS_DELETED
from tidemark.define.tidemark_columns import FAILED
from tidemark.engine.queries.planning import Planning
from tidemark.quality import quarantine
from tidemark.quality.evidence import UNPUBLISHED, Batch
from tidemark.quality.gx import ROW
from tidemark.quality.results import Result
from tidemark.quality.validation import validate_rows
from tidemark.store.rows import Rows, drop_deleted, to_frame

PASSED = "passed"
WARNED = "warned"


class _FailedExpectation(NamedTuple):
    """An expectation that a row fails, with the fields of an entry of `failed_expectations`."""

    expectation: str
    level: str
    observed: str
    expected: str


@dataclass(frozen=True)
class _Failures:
    """The failures among the validated rows.

    Args:
        by_row: the failures of single rows, by `ROW`.
        common: the failures of the rows as a whole.
        row_count: the number of validated rows.
    """

    by_row: dict[int, list[_FailedExpectation]]
    common: list[_FailedExpectation]
    row_count: int

    def has_error(self) -> bool:
        """Return whether an expectation of level `error` fails."""
        if any(failure.level == ERROR for failure in self.common):
            return True
        return self.count_rows_with_warnings() < len(self.by_row)

    def count_rows_with_warnings(self) -> int:
        """Return how many rows fail only expectations of level `warning`."""
        count = 0
        for failures in self.by_row.values():
            if all(failure.level != ERROR for failure in failures):
                count += 1
        return count


@dataclass(frozen=True)
class GateResult:
    """The rows of a commit after validation, separated into rows to publish and to quarantine.

    Args:
        rows: the rows to publish, each with its `quality`. `IS_DELETED` is true for rows to delete.
        count: the number of rows in `rows` that change the published table, including rows to
            delete. The other rows repeat the last good rows of quarantined windows.
        quarantine_changes: the changes of the quarantine; None if there are none.
        quarantined: the number of rows to quarantine.
        warned: the number of rows published with a warning.
        results: the results of the expectations, to be recorded.
    """

    rows: Rows
    count: int
    quarantine_changes: Rows | None = None
    quarantined: int = 0
    warned: int = 0
    results: Sequence[Result] = field(default_factory=list[Result])


def validate_and_split(batch: Batch, rows: Rows) -> GateResult:
    """Validate the rows of a commit. Separate the rows to publish from the rows to quarantine.

    Args:
        rows: the computed rows as they would be published. `IS_DELETED` is true for rows to delete.
    """
    warehouse = batch.asset.warehouse
    if not batch.guarded:
        return GateResult(rows, warehouse.count_windows(rows))
    with _set_planning(batch, rows):
        results = validate_rows(drop_deleted(rows), batch)
    failures = _collect_failures(results)
    declared = batch.transform.expectations
    # An expectation that is not declared is only recorded if rows fail it.
    recorded = list[Result]()
    for result in results:
        if result.expectation in declared or not result.success:
            recorded.append(result)
    if failures.has_error() or not quarantine.is_empty(batch):
        return _split_rows(to_frame(warehouse.spark, rows), batch, recorded, failures)
    warned = len(failures.by_row)
    if failures.common:
        warned = failures.row_count
    passing = _add_quality(rows, failures)
    return GateResult(passing, warehouse.count_windows(rows), warned=warned, results=recorded)


def _collect_failures(results: Sequence[Result]) -> _Failures:
    by_row: dict[int, list[_FailedExpectation]] = defaultdict(list)
    common: list[_FailedExpectation] = []
    row_count = 0
    for result in results:
        row_count = result.count
        if result.fails_as_whole:
            common.append(_describe_failure(result, result.describe_outcome()))
        for failure in result.failures:
            if failure.row is not None:
                by_row[failure.row].append(_describe_failure(result, failure.observed))
    return _Failures(by_row, common, row_count)


def _set_planning(batch: Batch, rows: Rows) -> AbstractContextManager[None]:
    """Set the best planning mode for validation. Change nothing if validation needs no engine."""
    in_memory = not isinstance(rows, DataFrame)
    if in_memory and not any(isinstance(e, Windowed) for e in batch.expectations):
        return nullcontext()
    # Rows that fit into memory are few enough for an interpreted plan.
    planning = Planning.for_size(in_memory)
    if batch.few_events:
        planning = batch.planning
    return batch.asset.warehouse.use_planning(planning)


def _add_quality(rows: Rows, failures: _Failures) -> Rows:
    """Return the rows, each with its `quality`, for a commit without quarantined rows."""
    if isinstance(rows, DataFrame):
        is_warned = F.lit(bool(failures.common))
        if failures.by_row and not failures.common:
            is_warned = F.col(ROW).isin(list(failures.by_row))
        quality = F.when(F.col(IS_DELETED), None).when(is_warned, WARNED).otherwise(PASSED)
        return rows.withColumn("quality", quality).drop(*UNPUBLISHED)
    grades: list[str | None] = []
    numbers = rows[ROW].to_pylist()
    for number, is_deleted in zip(numbers, rows[IS_DELETED].to_pylist(), strict=True):
        if is_deleted:
            grades.append(None)
        elif failures.common or number in failures.by_row:
            grades.append(WARNED)
        else:
            grades.append(PASSED)
    index = rows.schema.get_field_index("quality")
    graded = rows.set_column(index, "quality", pa.array(grades, pa.string()))
    return graded.drop_columns([column for column in UNPUBLISHED if column in rows.column_names])


def _split_rows(
    rows: DataFrame, batch: Batch, results: Sequence[Result], failures: _Failures
) -> GateResult:
    """Separate the rows to publish from the rows to quarantine.

    Args:
        results: the results to record.
    """
    marked = _mark_failing(rows, failures)
    settled = quarantine.compute_changes(replace(batch, rows=rows), marked)
    is_released = F.lit(False)
    if settled.released:
        is_released = F.col(ROW).isin(settled.released)
    quality = F.when(F.col(IS_DELETED), None).when(is_released, quarantine.RELEASED)
    quality = quality.when(F.size("failed_expectations") > 0, WARNED).otherwise(PASSED)
    columns = [name for name in rows.columns if name not in UNPUBLISHED]
    publishable = marked.where(~F.col("_bad") | is_released)
    passing = publishable.withColumn("quality", quality).select(columns)
    warned = failures.count_rows_with_warnings()
    if failures.common:
        warned = failures.row_count - settled.quarantined
    materialized = batch.scratch.materialize(passing, few=batch.few)
    count = batch.asset.warehouse.count_windows(materialized)
    if settled.last_good_rows is not None:
        last_good_rows = settled.last_good_rows.withColumn(IS_DELETED, F.lit(False)).select(columns)
        published_rows = to_frame(rows.sparkSession, materialized).unionByName(last_good_rows)
        materialized = batch.scratch.materialize(published_rows, few=batch.few)
    return GateResult(materialized, count, settled.changes, settled.quarantined, warned, results)


def _mark_failing(rows: DataFrame, failures: _Failures) -> DataFrame:
    """Return `rows` with the column `failed_expectations`, and with `_bad`, true if the row must be
    quarantined.
    """
    no_failures = F.array().cast(FAILED)
    failed = no_failures
    if failures.common:
        failed = F.array([_to_literal(failure) for failure in failures.common]).cast(FAILED)
    if failures.by_row:
        columns = f"{ROW} BIGINT, _own {FAILED}"
        failing_rows = rows.sparkSession.createDataFrame(list(failures.by_row.items()), columns)
        rows = rows.join(F.broadcast(failing_rows), ROW, "left")
        failed = F.concat(F.coalesce("_own", no_failures), failed)
    has_error = F.exists(failed, lambda failure: failure["level"] == ERROR)
    is_validated = ~F.col(IS_DELETED)
    marks = {"failed_expectations": F.when(is_validated, failed), "_bad": is_validated & has_error}
    return rows.withColumns(marks).drop("_own")


def _to_literal(failure: _FailedExpectation) -> Column:
    return F.struct([F.lit(value).alias(name) for name, value in failure._asdict().items()])


def _describe_failure(result: Result, observed: str) -> _FailedExpectation:
    expectation = result.expectation
    return _FailedExpectation(expectation.name, expectation.level, observed, expectation.expected)
