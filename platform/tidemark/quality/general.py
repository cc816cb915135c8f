"""Expectations of Great Expectations on the rows of windows, by a thin adapter.

Any of its expectation classes may stand in a transform's list as it is; its `severity` is the
level (`critical` is `error`, `warning` and `info` are `warning`). The functions here are short
names of some of them. Those that ask something of each row (column maps) withhold the rows that
fail; those that ask something of all rows together (a mean, a count) withhold all rows of the run.

Great Expectations takes seconds to import, so a definition only names what it wants of it.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame

from tidemark.errors import DefinitionError
from tidemark.quality.expectation import ERROR, WARNING, Expectation

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation as Expected

ROW = "_row"
"""The column that tells one judged row from another."""

_SHAPE = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": [ROW],
    "return_unexpected_index_query": False,
}
_OWN = ("id", "meta", "notes", "result_format", "description", "catch_exceptions")
_OWN += ("rendered_content", "severity", "windows", "batch_id")


@dataclass(frozen=True, kw_only=True)
class General(Expectation):
    """An expectation of Great Expectations.

    Args:
        kind: the class, or its name in `great_expectations.expectations`.
        arguments: what it is made with.
    """

    kind: str | type
    arguments: Mapping[str, Any]


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


def between(
    column: str, least: object = None, most: object = None, *, level: str = ERROR, **more: object
) -> General:
    """Each value lies from `least` to `most`; None is no bound, and null is no value."""
    if least is None and most is None:
        raise DefinitionError(f"between({column}) has no bound: give the least value or the most.")
    if most is None:
        name, expected = f"least={least}", f"at least {least}"
    elif least is None:
        name, expected = f"most={most}", f"at most {most}"
    else:
        name, expected = f"{least}, {most}", f"from {least} to {most}"
    return _short(
        f"between({column}, {name})",
        expected,
        "ExpectColumnValuesToBeBetween",
        {"column": column, "min_value": least, "max_value": most, **more},
        level,
    )


def not_null(column: str, *, level: str = ERROR, **more: object) -> General:
    """No value is null."""
    return _short(
        f"not_null({column})",
        "a value",
        "ExpectColumnValuesToNotBeNull",
        {"column": column, **more},
        level,
    )


def one_of(column: str, values: Sequence[object], *, level: str = ERROR, **more: object) -> General:
    """Each value is one of those listed."""
    shown = ", ".join(map(str, values))
    return _short(
        f"one_of({column}, [{shown}])",
        f"one of {shown}",
        "ExpectColumnValuesToBeInSet",
        {"column": column, "value_set": list(values), **more},
        level,
    )


def greater(column: str, than: str, *, level: str = ERROR, **more: object) -> General:
    """A row's value in `column` is greater than that in the column `than`."""
    return _short(
        f"greater({column}, {than})",
        f"{column} > {than}",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": column, "column_B": than, **more},
        level,
    )


def adapted(given: object) -> General:
    """An expectation object of Great Expectations, as one of ours.

    Raises:
        DefinitionError: it is none.
    """
    if not any(c.__module__.startswith("great_expectations.") for c in type(given).__mro__):
        raise DefinitionError(
            f"{given!r} is no expectation: use the functions of tidemark.quality, or an object of "
            "a class of great_expectations.expectations."
        )
    made: Any = given
    arguments = {k: v for k, v in made.configuration.kwargs.items() if k not in _OWN}
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return General(
        name=f"{type(given).__name__}({shown})",
        expected=shown or type(given).__name__,
        columns=tuple(_columns(arguments)),
        level=ERROR if str(getattr(made.severity, "value", "")) == "critical" else WARNING,
        kind=type(given),
        arguments=arguments,
    )


def judge(rows: "pd.DataFrame | DataFrame", expectations: Sequence[General]) -> list[Finding]:
    """Judge rows in one pass; a finding for each expectation, in their order.

    Args:
        rows: with the column `ROW`; in memory or in the engine.

    Raises:
        DefinitionError: an expectation can't be judged on these rows.
    """
    if not expectations:
        return []
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


def _short(
    name: str, expected: str, kind: str, arguments: Mapping[str, Any], level: str
) -> General:
    return General(
        name=name,
        expected=expected,
        columns=tuple(_columns(arguments)),
        level=level,
        kind=kind,
        arguments={k: v for k, v in arguments.items() if v is not None},
    )


def _columns(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name in ("column", "column_A", "column_B"):
            yield value
        elif name == "column_list":
            yield from value
