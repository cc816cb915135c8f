"""The gate: validate the rows that a commit is about to publish, and quarantine the rows that fail.

The gate writes no tables except temporary ones. It returns the rows to publish, the changes of the
quarantine and the results, and the caller commits them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

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

PASSED, WARNED = "passed", "warned"

_Failed = tuple[str, str, str, str]


@dataclass(frozen=True)
class GateResult:
    """The result of the gate.

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
    if not batch.guarded:
        return GateResult(rows, batch.asset.warehouse.count_windows(rows))
    with _set_planning(batch, rows):
        validated = validate_rows(drop_deleted(rows), batch)
    failed: dict[int, list[_Failed]] = defaultdict(list)
    for result in validated:
        for failure in result.failures:
            if failure.row is not None:
                failed[failure.row].append(_describe_failure(result, failure.observed))
    common_failures = [
        _describe_failure(r, r.describe_outcome()) for r in validated if r.fails_as_whole
    ]
    levels = {f[1] for fs in failed.values() for f in fs} | {f[1] for f in common_failures}
    row_count = validated[0].count if validated else 0
    declared = batch.transform.expectations
    validated = [r for r in validated if r.expectation in declared or not r.success]
    if ERROR not in levels and quarantine.is_empty(batch):
        warned = row_count if common_failures else len(failed)
        passing = _add_quality(rows, {*failed}, everything=bool(common_failures))
        return GateResult(
            passing, batch.asset.warehouse.count_windows(rows), warned=warned, results=validated
        )
    return _split_rows(
        to_frame(batch.asset.warehouse.spark, rows),
        batch,
        validated,
        failed,
        common_failures,
        row_count,
    )


def _set_planning(batch: Batch, rows: Rows) -> AbstractContextManager[None]:
    """Set the best planning mode for validation. Change nothing if validation needs no engine."""
    in_memory = not isinstance(rows, DataFrame)
    if in_memory and not any(isinstance(e, Windowed) for e in batch.expectations):
        return nullcontext()
    # Rows that fit into memory are few enough for an interpreted plan.
    planning = batch.planning if batch.few_events else Planning.for_size(in_memory)
    return batch.asset.warehouse.use_planning(planning)


def _add_quality(rows: Rows, warned: set[int], *, everything: bool) -> Rows:
    """Return the rows, each with its `quality`, for a commit without quarantined rows.

    Args:
        warned: the `ROW` numbers of the rows that fail an expectation of level `warning`.
        everything: true if an expectation fails for the rows as a whole.
    """
    if isinstance(rows, DataFrame):
        if everything:
            marked = F.lit(True)
        else:
            marked = F.col(ROW).isin([*warned]) if warned else F.lit(False)
        quality = F.when(F.col(IS_DELETED), None).when(marked, WARNED).otherwise(PASSED)
        return rows.withColumn("quality", quality).drop(*UNPUBLISHED)
    numbers = rows[ROW].to_pylist()
    deleted = rows[IS_DELETED].to_pylist()
    grades = [
        None if is_deleted else WARNED if everything or number in warned else PASSED
        for number, is_deleted in zip(numbers, deleted, strict=True)
    ]
    index = rows.schema.get_field_index("quality")
    graded = rows.set_column(index, "quality", pa.array(grades, pa.string()))
    return graded.drop_columns([column for column in UNPUBLISHED if column in rows.column_names])


def _split_rows(
    rows: DataFrame,
    batch: Batch,
    validated: Sequence[Result],
    failed: Mapping[int, list[_Failed]],
    common_failures: list[_Failed],
    row_count: int,
) -> GateResult:
    """Separate the rows to publish from the rows to quarantine.

    Args:
        failed: the failures of single rows, by `ROW`.
        common_failures: the failures of the rows as a whole.
        row_count: the number of validated rows.
    """
    marked = _mark_failing(rows, failed, common_failures)
    settled = quarantine.compute_changes(replace(batch, rows=rows), marked)
    is_released = F.col(ROW).isin(settled.released) if settled.released else F.lit(False)
    quality = (
        F.when(F.col(IS_DELETED), None)
        .when(is_released, quarantine.RELEASED)
        .when(F.size("failed_expectations") > 0, WARNED)
        .otherwise(PASSED)
    )
    columns = [c for c in rows.columns if c not in UNPUBLISHED]
    passing = (
        marked.where(~F.col("_bad") | is_released).withColumn("quality", quality).select(columns)
    )
    rows_with_warnings = sum(all(f[1] != ERROR for f in fs) for fs in failed.values())
    warned = (
        row_count - settled.quarantined if common_failures and validated else rows_with_warnings
    )
    materialized = batch.scratch.materialize(passing, few=batch.few)
    count = batch.asset.warehouse.count_windows(materialized)
    if settled.last_good_rows is not None:
        published_rows = to_frame(rows.sparkSession, materialized).unionByName(
            settled.last_good_rows.withColumn(IS_DELETED, F.lit(False)).select(columns)
        )
        materialized = batch.scratch.materialize(published_rows, few=batch.few)
    return GateResult(materialized, count, settled.changes, settled.quarantined, warned, validated)


def _mark_failing(
    rows: DataFrame, failed: Mapping[int, list[_Failed]], common_failures: list[_Failed]
) -> DataFrame:
    """Return `rows` with the column `failed_expectations`, and with `_bad`, true if the row must be
    quarantined.
    """
    no_failures = F.array().cast(FAILED)
    failures = (
        F.array(*[_to_literal(f) for f in common_failures]).cast(FAILED)
        if common_failures
        else no_failures
    )
    if failed:
        failing_rows = rows.sparkSession.createDataFrame(
            [*failed.items()], f"{ROW} BIGINT, _own {FAILED}"
        )
        rows = rows.join(F.broadcast(failing_rows), ROW, "left")
        failures = F.concat(F.coalesce("_own", no_failures), failures)
    is_bad = F.exists(failures, lambda f: f["level"] == ERROR)
    validated = ~F.col(IS_DELETED)
    return rows.withColumns(
        {"failed_expectations": F.when(validated, failures), "_bad": validated & is_bad}
    ).drop("_own")


def _to_literal(failed: _Failed) -> Column:
    names = ("expectation", "level", "observed", "expected")
    return F.struct(*[F.lit(v).alias(n) for n, v in zip(names, failed, strict=True)])


def _describe_failure(result: Result, observed: str) -> _Failed:
    expectation = result.expectation
    return expectation.name, expectation.level, observed, expectation.expected
