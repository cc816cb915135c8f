"""Validate the rows of windows with Great Expectations, in memory and in chunks."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.define.expectations.general import General

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation as Expected

ROW = "_row"
"""The column with the unique number of a validated row."""

_LIBRARY_LOCK = Lock()
"""The lock for using or importing Great Expectations. The library keeps rows in process-wide state:
without the lock, two concurrent threads could validate each other's rows."""

_RESULT_FORMAT = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": [ROW],
    "return_unexpected_index_query": False,
}

_BETWEEN = "ExpectColumnValuesToBeBetween"
_JSON_SCHEMA = "ExpectColumnValuesToMatchJsonSchema"
_BY_ROW = {
    f"ExpectColumn{name}"
    for name in (
        "ValuesToBeBetween",
        "ValuesToBeNull",
        "ValuesToNotBeNull",
        "ValuesToBeInSet",
        "ValuesToNotBeInSet",
        "PairValuesToBeInSet",
        "PairValuesAToBeGreaterThanB",
        "PairValuesToBeEqual",
        "ValueLengthsToBeBetween",
        "ValueLengthsToEqual",
        "ValuesToMatchRegex",
        "ValuesToNotMatchRegex",
        "ValuesToMatchRegexList",
        "ValuesToNotMatchRegexList",
        "ValuesToMatchStrftimeFormat",
        "ValuesToBeDateutilParseable",
        "ValuesToBeJsonParseable",
        "ValuesToMatchJsonSchema",
    )
} | {
    "ExpectMulticolumnSumToEqual",
    "ExpectMulticolumnValuesToBeEqual",
    "ExpectSelectColumnValuesToBeUniqueWithinRecord",
}
"""The library's expectations that validate each row independently. They get the rows of a run in
chunks; every other expectation gets all rows in one piece."""

Chunks = Callable[[Sequence[str] | None], Iterable[pa.Table]]
"""A function that yields rows in chunks that fit into memory, with the given columns; None stands
for all columns."""


@dataclass(frozen=True)
class Finding:
    """The failures that Great Expectations has found for one expectation.

    Args:
        rows: the `ROW` and the value of each failing row; None if the result is about the rows as a
            whole.
        observed: the value observed for the rows as a whole, if there is one.
    """

    success: bool
    rows: list[tuple[int, str]] | None
    observed: str | None


def import_library() -> None:
    """Import Great Expectations, so that later imports of it take no time.

    The import takes seconds. Callers run it in the background while they wait for the engine.
    """
    with _LIBRARY_LOCK:
        _load_batch_definition()


def validate_chunks(chunks: Chunks, expectations: Sequence[General]) -> list[Finding]:
    """Validate rows, and return a finding for each expectation, in order.

    The library always validates in memory, so that an expectation means the same for few rows and
    for many. For expectations about single rows, the result of a row does not depend on other rows.

    Args:
        chunks: yields the rows, which must have the column `ROW`.
    """
    row_expectations: dict[int, General] = {}
    other_expectations: dict[int, General] = {}
    for number, expectation in enumerate(expectations):
        if _is_by_row(expectation):
            row_expectations[number] = expectation
        else:
            other_expectations[number] = expectation
    findings: dict[int, Finding] = {}
    with _LIBRARY_LOCK:
        _load_library()
        if row_expectations:
            findings |= _validate_each_row(chunks, row_expectations)
        if other_expectations:
            findings |= _validate_as_whole(pa.concat_tables(chunks(None)), other_expectations)
    return [findings[number] for number in range(len(expectations))]


def _validate_each_row(chunks: Chunks, expectations: Mapping[int, General]) -> dict[int, Finding]:
    """Return the findings of expectations about single rows, by the number of the expectation."""
    from tidemark.quality import exact

    tallies = {number: _Tally(expectation) for number, expectation in expectations.items()}
    for rows in chunks(_needed_columns(expectations.values())):
        results = _validate_chunk(exact.exact_frame(rows), expectations, rows.schema)
        _refuse_errors(expectations, results)
        for number, result in results.items():
            tallies[number].add_result(result)
    return {number: tally.build_finding() for number, tally in tallies.items()}


def _validate_as_whole(rows: pa.Table, expectations: Mapping[int, General]) -> dict[int, Finding]:
    """Return the findings of expectations about all rows, by the number of the expectation."""
    from tidemark.quality import exact

    results = _validate_chunk(exact.statistics_frame(rows), expectations, rows.schema)
    undefined: dict[int, General] = {}
    for number, expectation in expectations.items():
        if _list_errors(results[number]):
            undefined[number] = expectation
    if undefined:
        # The library raises an error if a statistic of exact columns is null, because there are
        # too few values. It accepts the NaN that its usual columns give instead.
        results |= _validate_chunk(exact.usual_frame(rows), undefined, rows.schema)
    _refuse_errors(expectations, results)
    return {number: _to_finding(result) for number, result in results.items()}


def _is_by_row(expectation: General) -> bool:
    kind = expectation.kind
    if isinstance(kind, str):
        return kind in _BY_ROW
    return kind.__name__ in _BY_ROW and kind.__module__.startswith("great_expectations.")


def _needed_columns(expectations: Iterable[General]) -> list[str] | None:
    """Return the columns that expectations need.

    Return None, for all columns, if an expectation has a row condition, which may use any column.
    """
    columns = [ROW]
    for expectation in expectations:
        if "row_condition" in expectation.arguments:
            return None
        columns += expectation.columns
    return list(dict.fromkeys(columns))


def _validate_chunk(
    rows: pd.DataFrame, expectations: Mapping[int, General], schema: pa.Schema
) -> "dict[int, ExpectationValidationResult]":
    """Return the library's result for some rows, by the number of the expectation."""
    numbered: list[Expected] = []
    for number, expectation in expectations.items():
        built = _build_expectation(expectation, schema)
        # The library returns the results in any order, each with the metadata of its expectation.
        numbered.append(built.copy(update={"meta": {"place": number}}))
    suite = _load_library().ExpectationSuite(name="rows", expectations=numbered)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = _load_batch_definition().get_batch({"dataframe": rows})
        validated = batch.validate(suite, result_format=_RESULT_FORMAT)
    return {result.expectation_config.meta["place"]: result for result in validated.results}


class _Tally:
    """The result of an expectation about single rows, accumulated over chunks of rows."""

    def __init__(self, expectation: General) -> None:
        self._mostly = float(expectation.arguments.get("mostly", 1.0))
        self._validated = 0
        self._failing: list[tuple[int, str]] = []

    def add_result(self, result: "ExpectationValidationResult") -> None:
        detail = result.result
        self._validated += int(detail["element_count"]) - int(detail.get("missing_count") or 0)
        self._failing += _list_failing(detail)

    def build_finding(self) -> Finding:
        failed = len(self._failing)
        if not failed or (self._validated - failed) / self._validated >= self._mostly:
            return Finding(success=True, rows=[], observed=None)
        return Finding(success=False, rows=self._failing, observed=None)


@cache
def _load_library() -> ModuleType:
    with warnings.catch_warnings():
        # The library's imports emit deprecation warnings about other packages.
        warnings.simplefilter("ignore")
        import_module("great_expectations.expectations")
        return import_module("great_expectations")


@cache
def _load_batch_definition() -> "BatchDefinition[Any]":
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = _load_library().get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    context.enable_analytics(False)
    source = context.data_sources.add_pandas("memory")
    return source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")


def _build_expectation(expectation: General, schema: pa.Schema) -> "Expected":
    kind: Any = expectation.kind
    if isinstance(kind, str):
        kind = getattr(_load_library().expectations, kind)
    from tidemark.quality import exact

    arguments = {name: exact.in_utc(value) for name, value in expectation.arguments.items()}
    try:
        built = kind(**arguments)
    except ValueError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DefinitionError(f"Expectation {expectation.name} is not valid: {reason}.") from None
    if not _is_by_row(expectation) or len(expectation.columns) != 1:
        return built
    (column,) = expectation.columns
    arguments |= exact.convert_bounds(arguments, schema.field(column).type)
    return _find_row_class(kind)(**arguments)


def _find_row_class(kind: Any) -> Any:  # noqa: ANN401 (the library's classes)
    """Return the class that validates single rows in place of one of the library's classes.

    Return the library's class itself if Tidemark has no replacement.
    """
    if kind.__name__ == _JSON_SCHEMA:
        from tidemark.quality.json_schema import ExpectColumnValuesToMatchJsonSchemaOrFail

        return ExpectColumnValuesToMatchJsonSchemaOrFail
    if kind.__name__ == _BETWEEN:
        return _build_between()
    return kind


@cache
def _build_between() -> "type[Expected]":
    """Return a subclass of `ExpectColumnValuesToBeBetween` that accepts bounds of any type.

    The library's own class would convert all numbers to floats.
    """
    base = getattr(_load_library().expectations, _BETWEEN)
    fields = {"__annotations__": dict.fromkeys(("min_value", "max_value"), Any)}
    fields |= {"min_value": None, "max_value": None, "__module__": __name__}
    return type("ExpectColumnValuesToBeExactlyBetween", (base,), fields)


def _list_errors(result: "ExpectationValidationResult") -> list[str]:
    """Return the library's error messages if it could not compute an expectation, else nothing."""
    exceptions = result.exception_info
    # The library gives either one error, or the errors of several metrics by their names.
    raised: list[Any] = [error for error in exceptions.values() if isinstance(error, dict)]
    if not raised and exceptions.get("raised_exception"):
        raised.append(exceptions)
    messages: list[str] = []
    for error in raised:
        words = str(error["exception_message"]).split()
        messages.append(" ".join(words).rstrip("."))
    return messages


def _refuse_errors(
    expectations: Mapping[int, General], results: "Mapping[int, ExpectationValidationResult]"
) -> None:
    for n, result in results.items():
        if errors := _list_errors(result):
            name = expectations[n].name
            raise DefinitionError(
                f"Expectation {name} can't be validated: {errors[0]}. Correct its arguments."
            )


def _to_finding(result: "ExpectationValidationResult") -> Finding:
    """Return the finding of an expectation that got all rows in one piece."""
    success = bool(result.success)
    failing: list[tuple[int, str]] = []
    if not success:
        failing = _list_failing(result.result)
    if "unexpected_count" not in result.result or (not success and not failing):
        return Finding(success, None, _describe_outcome(result))
    return Finding(success, failing, None)


def _list_failing(detail: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the `ROW` and the value of each failing row in a result of the library."""
    rows = detail.get("unexpected_index_list") or []
    return [(int(row[ROW]), _format_row(row)) for row in rows]


def _describe_outcome(result: "ExpectationValidationResult") -> str | None:
    """Return the value observed for the rows as a whole; None if there is nothing to report."""
    observed = result.result.get("observed_value")
    if observed is not None:
        return str(observed)
    if result.success:
        return None
    described: list[str] = []
    for kind in ("unexpected", "missing"):
        values = result.result.get(f"partial_{kind}_list")
        if values:
            described.append(f"{kind} values: {', '.join(map(_format_value, values))}")
    return "; ".join(described) or "not as expected"


def _format_row(row: Mapping[str, Any]) -> str:
    values = {name: value for name, value in row.items() if name != ROW}
    if len(values) == 1:
        return _format_value(*values.values())
    return ", ".join(f"{name}={_format_value(values[name])}" for name in sorted(values))


def _format_value(value: object) -> str:
    if value is None or value is pd.NA or value is pd.NaT:
        return "null"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
