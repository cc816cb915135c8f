"""Aggregates in Python, for results that no engine expression can compute."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.define.aggregates.combiner import Aggregate, call_name, fixed_type, select_values
from tidemark.define.column_type import UnknownTypeError, data_type


@check_arguments
def python(
    name: str,
    column: Sql,
    *,
    partial: Callable[[list[Any]], Any],
    merge: Callable[[list[Any]], Any],
    finish: Callable[[Any], Any],
    partial_type: str,
    result_type: str,
    where: Sql | None = None,
) -> Aggregate:
    """Create an aggregate from three Python functions, which the engine calls.

    `partial` takes a list of the values of some events, and returns their contribution. `merge`
    takes a list of such partials, and returns the partial of all of them. Both lists are sorted,
    the smallest first.
    `finish` takes a partial and returns the result. The partial of no values is `partial([])`. Null
    values are left out. Your functions return a struct as a tuple. If they take a struct, they can
    read its fields by name, as in `p.total`. A timestamp is a naive datetime in UTC.

    All values of a window are in memory at once, and each passes through Python: prefer the other
    aggregates if they are sufficient.

    The example computes the range of the values, which is null without values.

    Example:
        agg.python(
            "spread",
            "celsius",
            partial=lambda values: (values[0], values[-1]) if values else (None, None),
            merge=lambda parts: (
                min((p.low for p in parts if p.low is not None), default=None),
                max((p.high for p in parts if p.high is not None), default=None),
            ),
            finish=lambda p: None if p.low is None else p.high - p.low,
            partial_type="struct<low: double, high: double>",
            result_type="double",
        )

    Args:
        name: the aggregate's name in messages and metadata.
        column: a SQL expression for the values.
        partial_type: the Spark DDL type of a partial; the engine must be able to sort partials.
        result_type: the Spark DDL type of the result.
        where: a SQL condition for the events that count.

    Raises:
        DefinitionError: one of the types is not supported.
    """
    of_partials = _parse_type(name, "partial_type", partial_type)
    of_results = _parse_type(name, "result_type", result_type)

    def merge_parts(parts: list[Any]) -> Any:  # noqa: ANN401
        if parts:
            return merge(parts)
        return partial([])

    def merge_all(partials: Column) -> Column:
        return _call_function(merge_parts, of_partials, F.sort_array(F.collect_list(partials)))

    return Aggregate(
        call_name(name, column, where),
        lambda: _call_function(
            partial, of_partials, F.sort_array(F.collect_list(select_values(column, where)))
        ),
        merge_all,
        # A struct keeps the names of its fields only inside an array.
        lambda p: _call_function(lambda parts: finish(parts[0]), of_results, F.array(p)),
        result_type=fixed_type(of_results.simpleString()),
    )


def _call_function(
    function: Callable[[list[Any]], Any], kind: DataType, argument: Column
) -> Column:
    return F.udf(function, kind, useArrow=True)(argument)


def _parse_type(name: str, argument: str, text: str) -> DataType:
    try:
        return data_type(text)
    except UnknownTypeError as error:
        raise DefinitionError(
            f"Aggregate '{name}' can't have {argument}='{text}': {error}."
        ) from None
