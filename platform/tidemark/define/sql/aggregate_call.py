"""Read an aggregate: `SUM(amount) FILTER (WHERE paid)`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlglot import TokenType

from tidemark.define import aggregates as agg
from tidemark.define.aggregates import Aggregate
from tidemark.define.source import Source
from tidemark.define.sql.expression import (
    find_column,
    is_number,
    read_expression,
    refuse_unknown_column,
)
from tidemark.define.sql.sql_text import Cursor, Phrase, list_choices

_FUNCTIONS: Mapping[str, Callable[..., Aggregate]] = {
    "count": agg.count,
    "sum": agg.sum,
    "avg": agg.mean,
    "mean": agg.mean,
    "min": agg.min,
    "max": agg.max,
    "stddev": agg.stddev,
    "stddev_samp": agg.stddev,
    "variance": agg.variance,
    "var_samp": agg.variance,
    "first": agg.first,
    "first_value": agg.first,
    "arg_min": agg.first,
    "last": agg.last,
    "last_value": agg.last,
    "arg_max": agg.last,
    "count_distinct": agg.count_distinct,
    "approx_count_distinct": agg.approx_count_distinct,
    "quantile": agg.quantile,
    "percentile_approx": agg.quantile,
    "approx_percentile": agg.quantile,
    "top_k": agg.top_k,
    "top_n": agg.top_n,
    "last_n": agg.last_n,
    "collect": agg.collect,
    "collect_list": agg.collect,
    "array_agg": agg.collect,
}
"""The aggregates by their names in SQL."""

_BY_EVENT_TIME = ("arg_min", "arg_max")
"""Functions whose second argument must be the event time."""

_QUANTILE = "write QUANTILE(x, 0.5), which is one of the values and not between two of them"
_IN_ORDER = "write FIRST(x) or LAST(x), which go by event time and skip nulls"
_SAMPLE = "write STDDEV(x) or VARIANCE(x), which are of the sample"
_COUNT_IF = "write COUNT(*) FILTER (WHERE …)"
_REMEDIES = {
    "median": _QUANTILE,
    "percentile": _QUANTILE,
    "percentile_cont": _QUANTILE,
    "percentile_disc": _QUANTILE,
    "mode": "write TOP_K(x, 1)",
    "max_by": _IN_ORDER,
    "min_by": _IN_ORDER,
    "any_value": _IN_ORDER,
    "stddev_pop": _SAMPLE,
    "var_pop": _SAMPLE,
    "std": _SAMPLE,
    "count_if": _COUNT_IF,
    "countif": _COUNT_IF,
    "bool_and": _COUNT_IF,
    "bool_or": _COUNT_IF,
    "every": _COUNT_IF,
    "any": _COUNT_IF,
    "some": _COUNT_IF,
    "collect_set": "write COLLECT(x), which keeps duplicates, or COUNT(DISTINCT x)",
    "listagg": "write COLLECT(x), which gives an array",
    "string_agg": "write COLLECT(x), which gives an array",
    "grouping": "list the keys in GROUP BY",
}
"""Aggregates of other systems, with what to write in their place."""

AGGREGATES = (*_FUNCTIONS, *_REMEDIES)
"""The names of aggregates, which can't be part of an expression."""

_EXPRESSIONS = ("column", "by")
"""The parameters of aggregates that take an expression. The others take a number."""


def read_aggregate(call: Phrase, source: Source) -> Aggregate:
    """Return the aggregate of a call."""
    cursor = Cursor(call)
    name = cursor.take()
    function = name.write().lower()
    if call.name is not None:
        raise refuse_unknown_column(call, source)
    if not cursor.is_at(TokenType.L_PAREN) or name.name is None:
        raise call.error(
            f"{call} is not an aggregate, a key or a bound of the window: group by it, or "
            f"aggregate it; {list_choices(_FUNCTIONS)}."
        )
    if function not in _FUNCTIONS:
        remedy = _REMEDIES.get(function)
        advice = f": {remedy}" if remedy else ""
        raise name.error(
            f"'{name.write()}' is not an aggregate of Tidemark{advice}; "
            f"{list_choices(_FUNCTIONS)}. A key that is an expression must be in GROUP BY, too."
        )
    arguments = cursor.take_group()
    condition = _read_filter(cursor, source)
    if cursor.token is not None:
        raise _refuse_rest(cursor.rest)
    with call.locate_errors():
        if function == "count":
            return _make_count(arguments, condition, source)
        values = _read_arguments(name, _FUNCTIONS[function], arguments, source)
        return _FUNCTIONS[function](**values, where=condition)


def _refuse_rest(rest: Phrase) -> Exception:
    """Return the error of tokens behind an aggregate."""
    if rest.tokens[0].token_type is TokenType.OVER:
        return rest.error("OVER can't be used: compare windows where you read the table.")
    if rest.tokens[0].text.upper() == "WITHIN":
        return rest.error(f"WITHIN GROUP can't be used: {_QUANTILE}.")
    return rest.error(
        f"{rest} behind an aggregate can't be used: give the aggregate a column of its own, and "
        "compute with it where you read the table."
    )


def _read_filter(cursor: Cursor, source: Source) -> str | None:
    """Return the condition of `FILTER (WHERE …)`, or None."""
    if not cursor.skip(TokenType.FILTER):
        return None
    if not cursor.is_at(TokenType.L_PAREN):
        raise cursor.rest.error("FILTER needs a condition, as in FILTER (WHERE amount > 0).")
    inner = Cursor(cursor.take_group())
    if not inner.skip(TokenType.WHERE):
        raise inner.rest.error("FILTER needs WHERE, as in FILTER (WHERE amount > 0).")
    return read_expression(inner.rest, source, AGGREGATES)


def _make_count(arguments: Phrase, condition: str | None, source: Source) -> Aggregate:
    """Return the aggregate of `COUNT(*)`, `COUNT(x)` or `COUNT(DISTINCT x)`."""
    cursor = Cursor(arguments)
    if cursor.skip(TokenType.DISTINCT):
        _refuse_several(cursor.rest)
        return agg.count_distinct(read_expression(cursor.rest, source, AGGREGATES), condition)
    if arguments.write() == "*" or is_number(arguments):
        return agg.count(condition)
    _refuse_several(arguments)
    value = read_expression(arguments, source, AGGREGATES)
    if len(arguments.tokens) > 1:
        value = f"({value})"
    has_value = f"{value} IS NOT NULL"
    if condition is not None:
        has_value = f"({condition}) AND {has_value}"
    return agg.count(has_value)


def _refuse_several(arguments: Phrase) -> None:
    """Refuse a `COUNT` of several expressions."""
    parts = arguments.split()
    if len(parts) > 1:
        raise parts[1].error(
            f"COUNT takes one expression: write COUNT(DISTINCT struct({arguments.write()}))."
        )


def _read_arguments(
    name: Phrase, make: Callable[..., Aggregate], arguments: Phrase, source: Source
) -> dict[str, Any]:
    """Return the arguments of a call by parameter. They are in order, or have names: `k => 3`."""
    if (distinct := arguments.contains(TokenType.DISTINCT)) is not None:
        raise arguments.sql.error(
            distinct.start, f"DISTINCT can't be used in {name.write()}, only in COUNT: remove it."
        )
    parameters = _list_parameters(make)
    in_order = [p for p in parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    values = dict[str, Any]()
    parts = arguments.split() if arguments.tokens else []
    if name.write().lower() in _BY_EVENT_TIME:
        parts = _without_event_time(name, parts, source)
    for number, part in enumerate(parts):
        if not part.tokens:
            raise part.error("an argument is missing: write one, or remove the comma.")
        cursor = Cursor(part)
        parameter = cursor.take().name
        value = part
        if cursor.skip(TokenType.FARROW):
            value = cursor.rest
        else:
            parameter = in_order[number].name if number < len(in_order) else None
        if parameter not in parameters or parameter in values:
            raise part.error(
                f"{part} is not an argument of {name.write()}; its arguments are "
                f"{', '.join(parameters)}."
            )
        values[parameter] = _read_value(parameter, value, source)
    for parameter in in_order:
        if parameter.default is inspect.Parameter.empty and parameter.name not in values:
            raise arguments.error(
                f"{name.write()} needs the argument {parameter.name}; its arguments are "
                f"{', '.join(parameters)}."
            )
    return values


def _list_parameters(make: Callable[..., Aggregate]) -> dict[str, inspect.Parameter]:
    """Return the parameters of an aggregate, without `where`, which is `FILTER` in SQL."""
    parameters = inspect.signature(make).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "where"}


def _without_event_time(name: Phrase, parts: Sequence[Phrase], source: Source) -> list[Phrase]:
    """Return the arguments of `ARG_MAX(x, at)` without the event time."""
    if len(parts) == len(("x", "at")) and find_column(parts[1], source) == source.event_time:
        return [parts[0]]
    raise name.error(
        f"{name.write()} needs a value and the event time, as in {name.write()}(x, "
        f"{source.event_time}). For another order, write TOP_N(x, 1, by => y)."
    )


def _read_value(parameter: str, value: Phrase, source: Source) -> str | int | float:
    if parameter in _EXPRESSIONS:
        return read_expression(value, source, AGGREGATES)
    if not is_number(value):
        raise value.error(f"the argument {parameter} must be a number (got {value}).")
    text = value.write()
    with suppress(ValueError):
        return int(text)
    try:
        return float(text)
    except ValueError:
        raise value.error(f"the argument {parameter} must be a number (got {value}).") from None
