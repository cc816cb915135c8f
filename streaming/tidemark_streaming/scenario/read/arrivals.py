"""Parse the arrivals of a scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.base.instants import INFINITY, parse_duration, parse_instant
from tidemark.define.source import Source
from tidemark.define.watermarks import Manual
from tidemark_streaming.scenario.read.columns import Columns, Kind, read_kind
from tidemark_streaming.scenario.read.reader import Node

ONLY = "scenario"
"""The name of the source of a scenario that defines only one."""
TICK = "1 millisecond"
"""How far each arrival moves the clock by default, if a scenario has several sources."""

_ITEMS = ("rows", "watermark", "clock")


@dataclass(frozen=True)
class ScenarioArrival:
    """One arrival of a scenario's source.

    Args:
        rows: the events, each with its values in the order of the source's columns; a `timestamp`
            in microseconds.
        clock: the processing time, in microseconds.
        watermark: the watermark after the arrival, if the scenario sets one.
        ends: true if the source ends with this arrival.
        silent_since: for a heartbeat, the clock at the source's last arrival with rows; the initial
            clock if there was none. None for an arrival that is not a heartbeat. A `clock` step is
            a heartbeat if the source declares `heartbeat`.
        source: the name of the source.
    """

    rows: tuple[tuple[Any, ...], ...]
    clock: int
    watermark: int | None = None
    ends: bool = False
    silent_since: int | None = None
    source: str = ONLY


def read_arrivals(
    node: Node,
    sources: Mapping[str, Source],
    columns: Mapping[str, Columns],
    begins: int,
    tick: int | None,
    *,
    ends: bool,
) -> tuple[ScenarioArrival, ...]:
    """Return the arrivals in order.

    Args:
        sources, columns: the sources and their columns, by source name.
        begins: the processing clock at the beginning, in microseconds.
        tick: how far each arrival moves the clock, in microseconds. None if there is only one
            source: arrivals then do not name their source, and only `clock` steps move the clock.
        ends: true if the sources end after the last arrival.
    """
    arrivals = list[ScenarioArrival]()
    clock = begins
    silent_since = dict.fromkeys(sources, begins)
    ended = set[str]()
    for item in node.read_items("'arrivals'"):
        if tick is None:
            (source,) = sources.values()
            kind, content = item.read_choice("an arrival", _ITEMS)
        else:
            source, kind, content = _named_item(item, sources, ended)
        if kind == "clock":
            clock += parse_duration(content.read_duration("a step of the clock"))
        elif tick is not None:
            clock += tick
        if clock >= INFINITY:
            raise content.error("the clock must not pass the year 9999.")
        name = source.name
        rows = tuple[tuple[Any, ...], ...]()
        watermark = None
        silent = None
        if kind == "rows":
            types = columns[name].types
            rows = tuple(_row_of(row, types) for row in content.read_items("'rows'"))
            if rows:
                silent_since[name] = clock
        elif kind == "clock":
            if source.heartbeat is not None:
                silent = silent_since[name]
        elif kind == "end":
            ended.add(name)
        elif isinstance(source.watermark, Manual):
            watermark = content.read_instant("a watermark")
        else:
            raise item.error(
                "only a source with the watermark {manual: {}} can have a watermark step; this "
                f"source has {source.watermark}."
            )
        arrivals.append(ScenarioArrival(rows, clock, watermark, kind == "end", silent, name))
    for name in sources:
        if ends and name not in ended:
            clock += tick or 0
            arrivals.append(ScenarioArrival((), clock, ends=True, source=name))
    return tuple(arrivals)


def _named_item(
    item: Node, sources: Mapping[str, Source], ended: set[str]
) -> tuple[Source, str, Node]:
    """Return an arrival's source, the kind of its content (`rows`, `end`, …), and the content."""
    kinds = (*_ITEMS, "end")
    fields = item.read_fields("an arrival", ("source",), kinds)
    name = fields.pop("source").read_word("a source with arrivals", list(sources))
    if len(fields) != 1:
        raise item.error(
            f"an arrival must have exactly one of {', '.join(kinds)} (got {len(fields)})."
        )
    if name in ended:
        raise item.error(f"'{name}' has ended: nothing can arrive after 'end: true'.")
    ((kind, value),) = fields.items()
    if kind == "end" and not value.read_boolean("'end'"):
        raise value.error("'end' must be true; leave the item out if the source does not end.")
    return sources[name], kind, value


@dataclass(frozen=True)
class Table:
    """The content of a lookup table, as a scenario file has it.

    Args:
        columns: the Spark DDL types of the columns, by name.
        rows: the rows, each with its values in the order of the columns; a `timestamp` in
            microseconds.
    """

    columns: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]


def read_lookups(node: Node, source: Source) -> dict[str, Table]:
    """Return the lookup tables in a scenario. Their names must be exactly those in the source."""
    fields = node.read_fields("the lookups of the source", tuple(source.lookups))
    return {name: _read_table(table) for name, table in fields.items()}


def _read_table(node: Node) -> Table:
    fields = node.read_fields("a lookup table", ("columns", "rows"))
    named = fields["columns"].read_entries("the columns of a lookup table")
    types = dict[str, Kind]()
    for name, kind in named:
        types[name.read_text("a column's name")] = read_kind(kind)
    rows = tuple(_row_of(row, types) for row in fields["rows"].read_items("'rows'"))
    return Table({name: kind.ddl for name, kind in types.items()}, rows)


def _row_of(node: Node, types: Mapping[str, Kind]) -> tuple[Any, ...]:
    """Return a row's values in the order of `types`. A column that the row omits is null."""
    fields = node.read_fields("a row", (), tuple(types))
    values = list[object]()
    for column, kind in types.items():
        value = None
        if column in fields:
            value = kind.read_value(fields[column], column)
        if isinstance(value, datetime) and value.tzinfo:
            value = parse_instant(value)
        values.append(value)
    return tuple(values)
