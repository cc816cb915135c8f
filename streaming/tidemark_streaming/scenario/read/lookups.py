"""Parse the lookup tables that a scenario's asset joins with the events."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.base.instants import instant
from tidemark.define.source import Source
from tidemark_streaming.scenario.read.columns import Kind, kind
from tidemark_streaming.scenario.read.reader import Node


@dataclass(frozen=True)
class Table:
    """Rows, each with its values in the order of the columns; a `timestamp` in microseconds.

    Args:
        columns: their Spark DDL types, by name.
    """

    columns: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]


def read_lookups(node: Node, source: Source) -> dict[str, Table]:
    """Return the lookup tables in a scenario, which must be exactly those of the source.

    Raises:
        ScenarioError: a table is missing, unknown or malformed.
    """
    given = node.fields("the lookups of the source", tuple(source.lookups))
    return {name: _table(table) for name, table in given.items()}


def _table(node: Node) -> Table:
    given = node.fields("a lookup table", ("columns", "rows"))
    named = given["columns"].entries("the columns of a lookup table")
    types = {name.text("a column's name"): kind(type_) for name, type_ in named}
    rows = tuple(row_of(row, types) for row in given["rows"].items("'rows'"))
    return Table({name: each.ddl for name, each in types.items()}, rows)


def row_of(node: Node, types: Mapping[str, Kind]) -> tuple[Any, ...]:
    """Return a row's values; a column that it does not name is null."""
    given = node.fields("a row", (), tuple(types))
    values = (
        types[column].read(given[column], column) if column in given else None for column in types
    )
    return tuple(instant(v) if isinstance(v, datetime) and v.tzinfo else v for v in values)
