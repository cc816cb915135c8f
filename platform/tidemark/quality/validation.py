"""Validate the rows that a commit is about to publish, with one result for each expectation.

The engine validates the expectations that need the event log or earlier windows. It computes two
columns for each of these expectations, in one pass over the rows. Great Expectations validates all
other expectations in memory: few rows in one piece, many rows in chunks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.compute.compare import keys_as_json
from tidemark.define.aggregates.combiner import SLACK
from tidemark.define.expectations.expectation import FACTS, Validation, Windowed
from tidemark.define.expectations.general import General
from tidemark.define.helper_columns import OBSERVED
from tidemark.engine.queries.requests import fetch_chunks, fetch_dataframe
from tidemark.quality import gx
from tidemark.quality.evidence import KEYS, UNPUBLISHED, Batch
from tidemark.quality.gx import ROW, Finding
from tidemark.quality.results import Failure, Result
from tidemark.store.rows import Rows, column_names, to_frame

_IDENTITY = [ROW, "window_start", "window_end", KEYS]
"""The columns that identify a row."""
_NOT_PASSED = [name for name in UNPUBLISHED if name != ROW]
"""The columns that are not passed to Great Expectations."""
_Place = tuple[int, str]
"""The identity of a row: the start of its window in microseconds, and its keys as JSON."""


@dataclass(frozen=True)
class _ValidatedRows:
    """Rows during their validation.

    Args:
        rows: the validated rows, in memory or in the engine.
        answers: the columns that `_add_outcomes` adds, with the identity of each row. If `rows` is
            in memory, for all rows; otherwise, only for the rows that fail.
        validated: for each windowed expectation, the number of rows that it validated.
        count: the number of rows.
        span: the first window start and the last window end, in microseconds.
    """

    rows: Rows
    answers: pd.DataFrame
    validated: Sequence[int]
    count: int
    span: tuple[int, int]


def row_number() -> Column:
    """Return a column with a unique number for each row.

    The rows must be computed once and completely before the numbers are used, because another
    computation of the same rows can give them other numbers.
    """
    return F.monotonically_increasing_id()


def validate_rows(rows: Rows, batch: Batch) -> list[Result]:
    """Validate rows. Return one result for each expectation, or no results without rows.

    Args:
        rows: completely computed rows, with the columns `ROW` and `KEYS`.
    """
    expectations = batch.expectations
    windowed = [expectation for expectation in expectations if isinstance(expectation, Windowed)]
    general = [expectation for expectation in expectations if isinstance(expectation, General)]
    # Start the queries for missing windows first, so that they run in the background.
    absent = [_find_absent(expectation, rows, batch) for expectation in windowed]
    validated, findings = _validate_each(rows, windowed, general, batch)
    if validated.count == 0:
        return []
    results: list[Result] = []
    for number, expectation in enumerate(windowed):
        results.append(_windowed_result(expectation, number, absent[number](), validated))
    results = [_confirm_fault(result, rows, batch) for result in results]
    places = _find_places(validated, _list_failing_numbers(findings))
    for expectation, finding in zip(general, findings, strict=True):
        results.append(_general_result(expectation, finding, validated, places))
    order = [expectation.name for expectation in expectations]
    return sorted(results, key=lambda result: order.index(result.expectation.name))


def _validate_each(
    rows: Rows, windowed: Sequence[Windowed], general: Sequence[General], batch: Batch
) -> tuple[_ValidatedRows, list[Finding]]:
    """Validate rows by the engine and by Great Expectations; both at once if few.

    Without rows, there are no findings.
    """
    if not isinstance(rows, DataFrame) and rows.num_rows:
        passed = rows.drop_columns([name for name in rows.column_names if name in _NOT_PASSED])
        warehouse = batch.asset.warehouse
        findings = warehouse.run_in_background(lambda: _validate_general(passed, general))
        try:
            return _validate_windowed(rows, windowed, batch), findings.result()
        finally:
            wait([findings])
    validated_rows = _validate_windowed(rows, windowed, batch)
    if not validated_rows.count:
        return validated_rows, []
    return validated_rows, _validate_general(validated_rows.rows, general)


def _list_failing_numbers(findings: Sequence[Finding]) -> list[int]:
    """Return the `ROW` numbers of the rows that fail general expectations."""
    numbers: list[int] = []
    for finding in findings:
        numbers += [number for number, _ in finding.rows or []]
    return numbers


def _validate_general(rows: Rows, expectations: Sequence[General]) -> list[Finding]:
    return gx.validate_chunks(partial(_read_chunks, rows), expectations)


def _confirm_fault(result: Result, rows: Rows, batch: Batch) -> Result:
    """Return the result. For a fault of Tidemark itself, validate again and return the new result.

    Such a fault means that Tidemark lost or duplicated an event. Independent queries must confirm
    the fault before any row is quarantined for it.
    """
    expectation = result.expectation
    if result.success or not isinstance(expectation, Windowed) or not expectation.confirmed:
        return result
    recounted = batch.recount_events()
    validated_rows = _validate_windowed(rows, [expectation], recounted)
    find_absent = _find_absent(expectation, rows, recounted)
    return _windowed_result(expectation, 0, find_absent(), validated_rows)


def _validate_windowed(rows: Rows, windowed: Sequence[Windowed], batch: Batch) -> _ValidatedRows:
    few = _validate_in_memory(rows, windowed, batch)
    if few is not None:
        return few
    return _validate_in_engine(to_frame(batch.asset.warehouse.spark, rows), windowed, batch)


def _read_chunks(rows: Rows, names: Sequence[str] | None) -> Iterable[pa.Table]:
    """Return rows in chunks that fit into memory, with the given columns.

    Args:
        names: None stands for all columns that Great Expectations gets.
    """
    if not isinstance(rows, DataFrame):
        if names is not None:
            rows = rows.select(list(names))
        return [rows]
    if names is None:
        rows = rows.drop(*_NOT_PASSED)
    else:
        rows = rows.select([f"`{name}`" for name in names])
    return fetch_chunks(rows, thresholds.VALIDATED_ROWS)


def _add_outcomes(
    rows: DataFrame, names: Sequence[str], windowed: Sequence[Windowed], batch: Batch
) -> DataFrame:
    """Return `rows` with two columns for the n-th expectation: `_fails_<n>` and `_seen_<n>`.

    `_fails_<n>` is true if the row fails, and null if the expectation can't validate the row.
    `_seen_<n>` is the observed value of a row that fails.

    Args:
        names: the columns of `rows`.
    """
    columns = [F.col(name) for name in names]
    batch = replace(batch, rows=rows)
    for number, expectation in enumerate(windowed):
        outcome = Validation(rows, F.lit(None).cast("boolean"), F.lit(""))
        if expectation.validate is not None:
            outcome = expectation.validate(rows, batch)
        fails = outcome.fails.alias(f"_fails_{number}")
        seen = F.when(outcome.fails, outcome.observed).alias(f"_seen_{number}")
        rows = outcome.rows.select(*columns, fails, seen)
        columns += [F.col(f"_fails_{number}"), F.col(f"_seen_{number}")]
    return rows


def _validate_in_memory(
    rows: Rows, windowed: Sequence[Windowed], batch: Batch
) -> _ValidatedRows | None:
    if isinstance(rows, DataFrame):
        with_outcomes = _add_outcomes(rows, rows.columns, windowed, batch)
        # One more row shows that there are too many.
        outcomes = fetch_dataframe(with_outcomes.limit(thresholds.VALIDATED_ROWS + 1))
    else:
        outcomes = _add_outcomes_in_memory(rows, windowed, batch)
    if outcomes.num_rows > thresholds.VALIDATED_ROWS:
        return None
    answers = _to_pandas(outcomes)
    if not len(answers):
        return _ValidatedRows(outcomes, answers, [], 0, (0, 0))
    validated: list[int] = []
    for number in range(len(windowed)):
        fails = f"_fails_{number}"
        if fails not in answers:
            answers = answers.assign(**{fails: None, f"_seen_{number}": None})
        validated.append(int(answers[fails].notna().sum()))
    begin = int(_to_micros(answers["window_start"]).min())
    end = int(_to_micros(answers["window_end"]).max())
    passed = outcomes.select([name for name in column_names(rows) if name not in _NOT_PASSED])
    return _ValidatedRows(passed, answers, validated, len(answers), (begin, end))


def _add_outcomes_in_memory(rows: pa.Table, windowed: Sequence[Windowed], batch: Batch) -> pa.Table:
    """Return rows in memory with the columns that `_add_outcomes` adds.

    The engine receives only the columns that the expectations need, and returns only the added
    columns.
    """
    if not any(e.validate for e in windowed):
        return rows
    numbers = pa.array(range(rows.num_rows), pa.int64())
    needed = _select_needed(rows, windowed, batch).append_column("_place", numbers)
    engine_rows = to_frame(batch.asset.warehouse.spark, needed)
    outcome_columns: list[str] = []
    for number in range(len(windowed)):
        outcome_columns += [f"_fails_{number}", f"_seen_{number}"]
    with_outcomes = _add_outcomes(engine_rows, needed.column_names, windowed, batch)
    answers = fetch_dataframe(with_outcomes.select("_place", *outcome_columns))
    answers = answers.sort_by("_place")
    for name in outcome_columns:
        rows = rows.append_column(name, answers[name])
    return rows


def _select_needed(rows: pa.Table, windowed: Sequence[Windowed], batch: Batch) -> pa.Table:
    """Return rows in memory with only the columns that expectations need."""
    needed = {"commit_number", SLACK}
    needed.update(FACTS)
    needed.update(batch.transform.keys)
    for expectation in windowed:
        needed.update(expectation.columns)
    return rows.select([name for name in rows.column_names if name in needed])


def _validate_in_engine(
    rows: DataFrame, windowed: Sequence[Windowed], batch: Batch
) -> _ValidatedRows:
    fails = [F.col(f"_fails_{number}") for number in range(len(windowed))]
    outcome_columns = [F.col(name) for name in _IDENTITY]
    outcome_columns += fails
    outcome_columns += [F.col(f"_seen_{number}") for number in range(len(windowed))]
    with_outcomes = _add_outcomes(rows, rows.columns, windowed, batch)
    outcomes = batch.scratch.materialize_frame(with_outcomes.select(outcome_columns))
    aggregates = [
        F.count("*"),
        F.min(F.unix_micros("window_start")),
        F.max(F.unix_micros("window_end")),
    ]
    aggregates += [F.count(column) for column in fails]
    (counted,) = outcomes.agg(*aggregates).collect()
    count, begin, end, *validated = counted
    fails_any = reduce(or_, fails, F.lit(False))
    failing = _to_pandas(fetch_dataframe(outcomes.where(fails_any)))
    return _ValidatedRows(rows, failing, validated, count, (begin, end))


def _to_pandas(rows: pa.Table) -> pd.DataFrame:
    """Return the columns that identify rows, and those that `_add_outcomes` added, in pandas.

    Timestamps are in UTC, without a time zone, and in microseconds, because they may exceed the
    range of nanoseconds.
    """
    prefixes = (*_IDENTITY, "_fails_", "_seen_")
    rows = rows.select([name for name in rows.column_names if name.startswith(prefixes)])
    fields: list[pa.Field[Any]] = []
    for field in rows.schema:
        if pa.types.is_timestamp(field.type):
            fields.append(field.with_type(pa.timestamp("us")))
        else:
            fields.append(field)
    return rows.cast(pa.schema(fields)).to_pandas()


def _to_micros(instants: "pd.Series[pd.Timestamp]") -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return instants.to_numpy("datetime64[us]").astype("int64")


def _find_absent(expectation: Windowed, rows: Rows, batch: Batch) -> Callable[[], list[Failure]]:
    """Return a function that returns a failure for each window that an expectation finds missing.

    If there are few rows, the query for these windows starts immediately in the background;
    otherwise, it starts when the function is called.
    """
    find_absent = expectation.absent
    if find_absent is None:
        return list

    def find_failures() -> list[Failure]:
        needed = rows
        if not isinstance(needed, DataFrame):
            needed = _select_needed(needed, [expectation], batch)
        engine_rows = to_frame(batch.asset.warehouse.spark, needed)
        missing = find_absent(engine_rows, replace(batch, rows=engine_rows))
        keys = keys_as_json(batch.transform.keys)
        failures: list[Failure] = []
        for row in missing.select(F.unix_micros("window_start"), keys, OBSERVED).collect():
            failures.append(Failure(window_start=row[0], keys=row[1], observed=row[2]))
        return failures

    if batch.few:
        return batch.asset.warehouse.run_in_background(find_failures).result
    return find_failures


def _windowed_result(
    expectation: Windowed, number: int, absent: Sequence[Failure], validated_rows: _ValidatedRows
) -> Result:
    answers = validated_rows.answers
    failing = answers[answers[f"_fails_{number}"].eq(True)]
    starts = _to_micros(failing["window_start"])
    observed = failing[f"_seen_{number}"]
    failures: list[Failure] = []
    for row, start, keys, seen in zip(failing[ROW], starts, failing[KEYS], observed, strict=True):
        failures.append(Failure(int(start), keys, seen, int(row)))
    failures += absent
    validated = validated_rows.count
    if expectation.validate is not None:
        validated = validated_rows.validated[number]
    return Result(
        expectation,
        not failures,
        validated_rows.count,
        validated,
        validated_rows.span,
        sorted(failures),
    )


def _general_result(
    expectation: General,
    finding: Finding,
    validated_rows: _ValidatedRows,
    places: Mapping[int, _Place],
) -> Result:
    failures: list[Failure] = []
    for row, observed in finding.rows or []:
        start, keys = places[row]
        failures.append(Failure(start, keys, observed, row))
    return Result(
        expectation,
        finding.success,
        validated_rows.count,
        validated_rows.count,
        validated_rows.span,
        sorted(failures),
        observed=finding.observed,
    )


def _find_places(validated_rows: _ValidatedRows, numbers: Sequence[int]) -> dict[int, _Place]:
    answers = validated_rows.answers
    if isinstance(validated_rows.rows, DataFrame) and numbers:
        rows = validated_rows.rows
        failing_numbers = [(number,) for number in set(numbers)]
        failing_rows = rows.sparkSession.createDataFrame(failing_numbers, f"{ROW} BIGINT")
        named_rows = rows.join(F.broadcast(failing_rows), ROW).select(_IDENTITY)
        answers = _to_pandas(fetch_dataframe(named_rows))
    starts = _to_micros(answers["window_start"])
    places: dict[int, _Place] = {}
    for row, start, keys in zip(answers[ROW], starts, answers[KEYS], strict=True):
        places[int(row)] = (int(start), keys)
    return places
