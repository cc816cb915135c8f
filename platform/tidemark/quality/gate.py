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
from tidemark.quality.validation import validate
from tidemark.store.rows import Rows, drop_deleted, frame

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
        found: the results of the expectations, to be recorded.
    """

    rows: Rows
    count: int
    quarantine_changes: Rows | None = None
    quarantined: int = 0
    warned: int = 0
    found: Sequence[Result] = field(default_factory=list[Result])


def validate_and_split(batch: Batch, rows: Rows) -> GateResult:
    """Validate the rows of a commit. Separate the rows to publish from the rows to quarantine.

    Args:
        rows: the computed rows as they would be published. `IS_DELETED` is true for rows to delete.
    """
    if not batch.guarded:
        return GateResult(rows, batch.asset.warehouse.count(rows))
    with _set_planning(batch, rows):
        found = validate(drop_deleted(rows), batch)
    failed: dict[int, list[_Failed]] = defaultdict(list)
    for result in found:
        for failure in result.failures:
            if failure.row is not None:
                failed[failure.row].append(_describe_failure(result, failure.observed))
    together = [_describe_failure(r, r.text()) for r in found if r.together]
    levels = {f[1] for fs in failed.values() for f in fs} | {f[1] for f in together}
    total = found[0].count if found else 0
    declared = batch.transform.expectations
    found = [r for r in found if r.expectation in declared or not r.success]
    if ERROR not in levels and quarantine.is_empty(batch):
        warned = total if together else len(failed)
        good = _add_quality(rows, {*failed}, everything=bool(together))
        return GateResult(good, batch.asset.warehouse.count(rows), warned=warned, found=found)
    return _split(frame(batch.asset.warehouse.spark, rows), batch, found, failed, together, total)


def _set_planning(batch: Batch, rows: Rows) -> AbstractContextManager[None]:
    """Set the best planning mode for validation. Change nothing if validation needs no engine."""
    in_memory = not isinstance(rows, DataFrame)
    if in_memory and not any(isinstance(e, Windowed) for e in batch.expectations):
        return nullcontext()
    # Rows that fit into memory are few enough for an interpreted plan.
    planning = batch.planning if batch.few_events else Planning.of(in_memory)
    return batch.asset.warehouse.planning(planning)


def _add_quality(rows: Rows, warned: set[int], *, everything: bool) -> Rows:
    """Return the rows, each with its `quality`, for a commit without quarantined rows.

    Args:
        warned: the `ROW` numbers of the rows that fail an expectation of level `warning`.
        everything: true if an expectation fails for the rows as a whole.
    """
    if isinstance(rows, DataFrame):
        marked = (
            F.lit(True) if everything else F.col(ROW).isin([*warned]) if warned else F.lit(False)
        )
        quality = F.when(F.col(IS_DELETED), None).when(marked, WARNED).otherwise(PASSED)
        return rows.withColumn("quality", quality).drop(*UNPUBLISHED)
    numbers, deleted = rows[ROW].to_pylist(), rows[IS_DELETED].to_pylist()
    grades = [
        None if left else WARNED if everything or number in warned else PASSED
        for number, left in zip(numbers, deleted, strict=True)
    ]
    place = rows.schema.get_field_index("quality")
    graded = rows.set_column(place, "quality", pa.array(grades, pa.string()))
    return graded.drop_columns([m for m in UNPUBLISHED if m in rows.column_names])


def _split(
    rows: DataFrame,
    batch: Batch,
    found: Sequence[Result],
    failed: Mapping[int, list[_Failed]],
    together: list[_Failed],
    total: int,
) -> GateResult:
    """Separate the rows to publish from the rows to quarantine.

    Args:
        failed: the failures of single rows, by `ROW`.
        together: the failures of the rows as a whole.
        total: the number of validated rows.
    """
    marked = _mark_failing(rows, failed, together)
    settled = quarantine.compute_changes(replace(batch, rows=rows), marked)
    is_released = F.col(ROW).isin(settled.released) if settled.released else F.lit(False)
    quality = (
        F.when(F.col(IS_DELETED), None)
        .when(is_released, quarantine.RELEASED)
        .when(F.size("failed_expectations") > 0, WARNED)
        .otherwise(PASSED)
    )
    columns = [c for c in rows.columns if c not in UNPUBLISHED]
    good = marked.where(~F.col("_bad") | is_released).withColumn("quality", quality).select(columns)
    own = sum(all(f[1] != ERROR for f in fs) for fs in failed.values())
    warned = total - settled.quarantined if together and found else own
    materialized = batch.scratch.materialize(good, few=batch.few)
    count = batch.asset.warehouse.count(materialized)
    if settled.kept is not None:
        kept = frame(rows.sparkSession, materialized).unionByName(
            settled.kept.withColumn(IS_DELETED, F.lit(False)).select(columns)
        )
        materialized = batch.scratch.materialize(kept, few=batch.few)
    return GateResult(materialized, count, settled.changes, settled.quarantined, warned, found)


def _mark_failing(
    rows: DataFrame, failed: Mapping[int, list[_Failed]], together: list[_Failed]
) -> DataFrame:
    """Return `rows` with the column `failed_expectations`, and with `_bad`, true if the row must be
    quarantined.
    """
    none = F.array().cast(FAILED)
    every = F.array(*[_literal(f) for f in together]).cast(FAILED) if together else none
    if failed:
        local = rows.sparkSession.createDataFrame([*failed.items()], f"{ROW} BIGINT, _own {FAILED}")
        rows = rows.join(F.broadcast(local), ROW, "left")
        every = F.concat(F.coalesce("_own", none), every)
    bad = F.exists(every, lambda f: f["level"] == ERROR)
    validated = ~F.col(IS_DELETED)
    return rows.withColumns(
        {"failed_expectations": F.when(validated, every), "_bad": validated & bad}
    ).drop("_own")


def _literal(failed: _Failed) -> Column:
    names = ("expectation", "level", "observed", "expected")
    return F.struct(*[F.lit(v).alias(n) for n, v in zip(names, failed, strict=True)])


def _describe_failure(result: Result, observed: str) -> _Failed:
    expectation = result.expectation
    return expectation.name, expectation.level, observed, expectation.expected
