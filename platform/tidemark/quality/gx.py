"""Great Expectations, asked in one pass about the rows of windows."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame

from tidemark.base.errors import DefinitionError
from tidemark.define.expectations.general import General

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation as Expected

ROW = "_row"
"""The column that tells one judged row from another."""

_ALONE = Lock()
"""Held by who uses the library, or imports it: what it judges is kept with what is shared by all of
a process, so that two threads at once would each judge the other's rows."""

_SHAPE = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": [ROW],
    "return_unexpected_index_query": False,
}


@dataclass(frozen=True)
class Finding:
    """What Great Expectations found.

    Args:
        success: whether the expectation holds.
        rows: the failing rows' `ROW` and value; None where all rows fail together.
        observed: the value observed of all rows, where it is one.
    """

    success: bool
    rows: list[tuple[int, str]] | None
    observed: str | None


def prepare() -> None:
    """Import Great Expectations, which takes seconds: for who waits for the engine anyway."""
    with _ALONE:
        _batches(in_memory=True)


def judge(rows: "pd.DataFrame | DataFrame", expectations: Sequence[General]) -> list[Finding]:
    """Judge rows in one pass; a finding for each expectation, in their order.

    Args:
        rows: with the column `ROW`; in memory or in the engine.

    Raises:
        DefinitionError: an expectation can't be judged on these rows.
    """
    if not expectations:
        return []
    with _ALONE:
        gx = _library()
        made = [_made(e).copy(update={"meta": {"place": n}}) for n, e in enumerate(expectations)]
        batch = _batches(isinstance(rows, pd.DataFrame)).get_batch({"dataframe": rows})
        suite = gx.ExpectationSuite(name="rows", expectations=made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = batch.validate(suite, result_format=_SHAPE).results
    # It gives them in an order of its own.
    ordered = sorted(found, key=lambda r: r.expectation_config.meta["place"])
    return [_finding(e, r) for e, r in zip(expectations, ordered, strict=True)]


@cache
def _library() -> ModuleType:
    with warnings.catch_warnings():
        # Its imports warn of what other packages deprecate.
        warnings.simplefilter("ignore")
        import_module("great_expectations.expectations")
        return import_module("great_expectations")


@cache
def _batches(in_memory: bool) -> "BatchDefinition[Any]":
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = _library().get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    context.enable_analytics(False)
    add = context.data_sources
    source = add.add_pandas("memory") if in_memory else add.add_spark("engine", persist=False)
    return source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")


def _made(expectation: General) -> "Expected":
    kind: Any = expectation.kind
    if isinstance(kind, str):
        kind = getattr(_library().expectations, kind)
    try:
        return kind(**expectation.arguments)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise DefinitionError(f"Expectation {expectation.name} can't be: {reason}.") from None


def _finding(expectation: General, result: "ExpectationValidationResult") -> Finding:
    errors = [i for i in result.exception_info.values() if isinstance(i, dict)]
    if errors or result.exception_info.get("raised_exception"):
        message = (errors[0] if errors else result.exception_info)["exception_message"]
        reason = " ".join(str(message).split()).rstrip(".")
        raise DefinitionError(f"Expectation {expectation.name} can't be judged: {reason}.")
    detail = result.result
    if "unexpected_count" not in detail:
        return Finding(bool(result.success), None, str(detail.get("observed_value")))
    failing = [] if result.success else detail.get("unexpected_index_list") or []
    return Finding(bool(result.success), [(int(f[ROW]), _observed(f)) for f in failing], None)


def _observed(row: Mapping[str, Any]) -> str:
    values = {name: value for name, value in row.items() if name != ROW}
    if len(values) == 1:
        return _text(*values.values())
    return ", ".join(f"{name}={_text(values[name])}" for name in sorted(values))


def _text(value: Any) -> str:  # noqa: ANN401
    return "null" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)
