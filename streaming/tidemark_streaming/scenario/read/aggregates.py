"""Parse a scenario's aggregates: their names, arguments and result types."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemark.define import aggregates as agg
from tidemark.define.aggregates import Aggregate
from tidemark.define.column_spelling import write_column
from tidemark_streaming.scenario.read.columns import BIGINT, DOUBLE, NUMBER, Columns, Kind
from tidemark_streaming.scenario.read.reader import Node

_FUNCTIONS = {
    "count": "count",
    "sum": "sum",
    "avg": "mean",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "variance": "variance",
    "first": "first",
    "last": "last",
    "approx_count_distinct": "approx_count_distinct",
    "count_distinct": "count_distinct",
    "collect": "collect",
    "quantile": "quantile",
    "top_k": "top_k",
    "top_n": "top_n",
    "last_n": "last_n",
}
"""The names of aggregates in a scenario, with their names in `tidemark.agg`."""

_NUMERIC = ("sum", "avg", "stddev", "variance", "quantile")
_COUNTS = ("approx_count_distinct", "count_distinct")
_ROWS = ("top_n", "last_n")


def read_aggregates(node: Node, over: Columns) -> dict[str, tuple[Aggregate, Kind]]:
    """Return the aggregates of a transform with the types of their results, by column name."""
    entries = node.read_entries("'aggregates'")
    if not entries:
        raise node.error("a transform needs at least one aggregate, as in {n: count}.")
    return {key.raw.value: _read_aggregate(value, over) for key, value in entries}


def _read_aggregate(node: Node, over: Columns) -> tuple[Aggregate, Kind]:
    if node.raw.value == "count":
        return agg.count(), BIGINT
    name, argument = node.read_choice("an aggregate", _FUNCTIONS)
    if name == "count":
        raise node.error("'count' counts events and has no column: write count alone.")
    make: Callable[..., Aggregate] = getattr(agg, _FUNCTIONS[name])
    arguments: tuple[object, ...] = ()
    if name == "quantile":
        fields = argument.read_fields("a quantile", ("of", "at"))
        argument = fields["of"]
        arguments = (DOUBLE.read_value(fields["at"], "at"),)
    elif name == "top_k":
        fields = argument.read_fields("a top_k", ("of", "k"))
        argument = fields["of"]
        arguments = (fields["k"].read_integer("'k'", minimum=1),)
    elif name in _ROWS:
        fields = argument.read_fields(f"a {name}", ("of", "n"))
        argument = fields["of"]
        arguments = (fields["n"].read_integer("'n'", minimum=1),)
    column = _find_column(argument, name, over)
    with node.locate_errors():
        return make(write_column(column), *arguments), _result_kind(name, over.types[column])


def _find_column(node: Node, function: str, over: Columns) -> str:
    name = over.find_column(node)
    kind = over.types[name]
    if function in _NUMERIC and not kind.is_numeric:
        raise node.error(
            f"'{function}' needs a numeric column, but {node} has the type {kind.ddl}."
        )
    return name


def _result_kind(function: str, column: Kind) -> Kind:
    if function in _COUNTS:
        return BIGINT
    if function in _NUMERIC:
        if column.ddl in ("float", "real", "double"):
            return DOUBLE
        return NUMBER
    if function == "top_k":
        entry = {"value": column, "count": BIGINT}
        return Kind("value and count", lambda n: _read_entry(n, entry), repeated=True, scalar=False)
    return replace(column, repeated=function in ("collect", *_ROWS))


def _read_entry(node: Node, kinds: Mapping[str, Kind]) -> dict[str, object]:
    fields = node.read_fields("an entry of a top_k", tuple(kinds))
    return {name: kinds[name].read_value(value, name) for name, value in fields.items()}
