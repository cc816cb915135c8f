"""Parse the definitions in a scenario: its source, and the transform over it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.base.instants import parse_duration
from tidemark.define import watermarks
from tidemark.define.aggregates import Aggregate
from tidemark.define.row_function import RowFunction, make_row_function
from tidemark.define.source import NAME, Source
from tidemark.define.tidemark_columns import (
    ARRIVAL_COLUMNS,
    EVENT_TABLES,
    WINDOW_TABLES,
    find_table,
)
from tidemark.define.transform import ACCUMULATIONS, WindowedTransform
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Firing, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import Watermark
from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.read.aggregates import read_aggregates
from tidemark_streaming.scenario.read.columns import (
    Columns,
    Kind,
    any_value,
    columns_of,
    find_source,
    read_kind,
)
from tidemark_streaming.scenario.read.reader import Node, ScenarioError, read_file
from tidemark_streaming.scenario.read.row_expectations import add_expectations

_SPLIT = ("window_start", "window_end", "lateness_seconds")
"""Columns of the late table in addition to the event's own."""
_PANES = {"panes of a scenario": {"last": "boolean"}}
"""The field of a scenario's panes whose name differs from that of the panes table's column."""


def read_source(name: str, node: Node) -> Source:
    """Return the source that a node describes."""
    fields = node.read_fields("a source", ("event_time", "columns", "watermark"), ("heartbeat",))
    named = fields["columns"].read_entries("the columns of a source")
    types = {_read_column_name(key): read_kind(value) for key, value in named}
    lowered = [name.lower() for name in types]
    for number, (key, _) in enumerate(named):
        if lowered[number] in lowered[:number]:
            raise key.error(
                f"{key} differs from another column's name only in upper and lower case: choose "
                "another name."
            )
    watermark = _read_watermark(fields["watermark"], types)
    heartbeat = None
    if "heartbeat" in fields:
        heartbeat = fields["heartbeat"].read_duration("the heartbeat")
    with node.locate_errors():
        return Source(
            name=name,
            columns={name: column_kind.ddl for name, column_kind in types.items()},
            event_time=fields["event_time"].read_text("the event time"),
            watermark=watermark,
            heartbeat=heartbeat,
        )


@dataclass(frozen=True)
class Title:
    """The name and the description of a transform, which its text does not contain.

    Args:
        accumulation: the accumulation of a transform whose text does not specify it.
    """

    name: str = "result"
    description: str = "The transform of a scenario."
    accumulation: str | None = ACCUMULATIONS[0]


_OPTIONS = ("allowed_lateness", "trigger", "accumulation", "deduplicate", "expectations")
"""The optional parts of a transform, in SQL and otherwise."""

_SQL_FILE = re.compile(r"\S+\.sql")

SCENARIO = Title()
"""The title of a scenario's transform. It accumulates, so that scenarios have panes to expect."""


def read_transform(
    node: Node, sources: Mapping[str, Source], *, named: bool, title: Title = SCENARIO
) -> tuple[WindowedTransform, dict[str, Kind]]:
    """Return the windowed transform, and the types of its keys and aggregates.

    Args:
        sources: the sources that the transform can read.
        named: true if the node names the source; false if there is only one source.
    """
    names = [key.raw.value for key, _ in node.read_entries("a transform")]
    if "sql" in names:
        subject = "a transform in SQL"
        required = ["sql"]
        optional = list(_OPTIONS)
        read_parts = _read_sql
    else:
        subject = "a transform"
        required = ["window", "aggregates"]
        optional = ["keys", *_OPTIONS]
        read_parts = _read_fields
    if named:
        required.insert(0, "source")
    fields = node.read_fields(subject, required, optional)
    over = find_source(fields["source"], sources) if named else next(iter(sources.values()))
    parts = read_parts(fields, over)
    columns = columns_of(over)
    lateness = "0 seconds"
    if "allowed_lateness" in fields:
        lateness = fields["allowed_lateness"].read_duration("the allowed lateness")
    trigger = Trigger()
    if "trigger" in fields:
        trigger = _read_trigger(fields["trigger"])
    accumulation = title.accumulation
    if "accumulation" in fields:
        accumulation = fields["accumulation"].read_word("an accumulation", ACCUMULATIONS)
    deduplicate = None
    if "deduplicate" in fields:
        deduplicate = _read_deduplicate(fields["deduplicate"], columns)
    with node.locate_errors():
        windowed = WindowedTransform(
            name=title.name,
            description=title.description,
            source=over,
            keys=parts.keys,
            window=parts.window,
            allowed_lateness=parse_duration(lateness),
            aggregates=parts.aggregates,
            function=parts.function,
            trigger=trigger,
            accumulation=accumulation,
            deduplicate=deduplicate,
        )
    if "expectations" in fields:
        windowed = add_expectations(fields["expectations"], windowed)
    # A key that SQL computes has no declared type.
    kinds = {key: columns.types.get(key, any_value()) for key in windowed.keys}
    return windowed, kinds | parts.results


@dataclass(frozen=True)
class _Parts:
    """The parts of a transform that fields describe, or a text in SQL.

    Args:
        results: the types of the aggregates' results.
    """

    window: Window
    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    function: RowFunction
    results: dict[str, Kind]


def _read_fields(fields: Mapping[str, Node], over: Source) -> _Parts:
    """Return the parts of a transform with a window, aggregates and keys."""
    columns = columns_of(over)
    computed = read_aggregates(fields["aggregates"], columns)
    keys = list[tuple[Node, str]]()
    if "keys" in fields:
        for key in fields["keys"].read_items("'keys'"):
            keys.append((key, columns.find_column(key, "a key")))
    _check_names(keys, [name for name, _ in fields["aggregates"].read_entries("aggregates")])
    return _Parts(
        read_window(fields["window"]),
        tuple(name for _, name in keys),
        {name: aggregate for name, (aggregate, _) in computed.items()},
        make_row_function(),
        {name: gives for name, (_, gives) in computed.items()},
    )


def _read_sql(fields: Mapping[str, Node], over: Source) -> _Parts:
    """Return the parts of a transform in SQL, from a text or from the file that it names."""
    # sqlglot takes a third of a second to load, which texts without SQL need not wait for.
    from tidemark.define.sql.query import read_query
    from tidemark.define.sql.sql_text import SqlError, SqlText

    node = fields["sql"]
    text = node.read_text("the SQL")
    locate = node.locate_text
    if _SQL_FILE.fullmatch(text):
        path = node.path.parent / text
        text = read_file(path)
        locate = _locate_in(path)
    try:
        query = read_query(SqlText(text, locate), over)
    except SqlError as error:
        raise ScenarioError(str(error)) from None
    results = {name: any_value() for name in query.aggregates}
    return _Parts(query.window, tuple(query.keys), query.aggregates, query.function, results)


def _locate_in(path: Path) -> Callable[[int, int], str]:
    return lambda line, column: f"{path}:{line}:{column}"


def _read_column_name(node: Node) -> str:
    name = node.read_text("a column's name")
    if not NAME.fullmatch(name.lower()):
        raise node.error(
            f"{node} is not a valid column name: use letters, digits and underscores, and begin "
            "with a letter."
        )
    if name.lower() in (*ARRIVAL_COLUMNS, *_SPLIT):
        raise node.error(
            f"{node} is reserved: Tidemark adds a column of this name to the event log or to the "
            f"late table. Choose another name, such as 'own_{name.lower()}'."
        )
    return name


def _read_watermark(node: Node, types: Mapping[str, Kind]) -> Watermark:
    name, settings = node.read_choice("a watermark", _WATERMARKS)
    with node.locate_errors():
        return _WATERMARKS[name](settings, types)


def _bounded_strategy(node: Node, _: Mapping[str, Kind]) -> Watermark:
    if not node.is_mapping:
        return watermarks.BoundedOutOfOrderness(node.read_duration("a bound"))
    fields = node.read_fields("a watermark by a bound", ("bound",), ("idle",))
    return watermarks.BoundedOutOfOrderness(**_read_durations(fields))


def _monotonic_strategy(node: Node, _: Mapping[str, Kind]) -> Watermark:
    fields = node.read_fields("this strategy", (), ("idle",))
    return watermarks.MonotonicTimestamps(**_read_durations(fields))


def _read_durations(fields: Mapping[str, Node], *, allow_negative: bool = False) -> dict[str, str]:
    durations = dict[str, str]()
    for name, node in fields.items():
        durations[name] = node.read_duration(f"the {name}", negative=allow_negative)
    return durations


def _strategy_without_options(
    strategy: Callable[[], Watermark],
) -> Callable[[Node, Mapping[str, Kind]], Watermark]:
    def read_strategy(node: Node, _: Mapping[str, Kind]) -> Watermark:
        node.read_fields("this strategy", ())
        return strategy()

    return read_strategy


def _punctuated_strategy(node: Node, _: Mapping[str, Kind]) -> Watermark:
    return watermarks.Punctuated(node.read_text("an expression"))


def _per_partition(node: Node, types: Mapping[str, Kind]) -> Watermark:
    fields = node.read_fields("a watermark per partition", ("column", "bound"), ("idle",))
    column = Columns(types).find_column(fields.pop("column"))
    return watermarks.PerPartition(column, **_read_durations(fields))


_WATERMARKS: dict[str, Callable[[Node, Mapping[str, Kind]], Watermark]] = {
    "bounded_out_of_orderness": _bounded_strategy,
    "monotonous": _monotonic_strategy,
    "punctuated": _punctuated_strategy,
    "per_partition": _per_partition,
    "perfect": _strategy_without_options(watermarks.Perfect),
    "manual": _strategy_without_options(watermarks.Manual),
}


def _read_trigger(node: Node) -> Trigger:
    fields = node.read_fields("a trigger", (), ("early", "late"))
    fires: dict[str, Any] = {name: _read_firing(value) for name, value in fields.items()}
    return Trigger(**fires)


def _read_deduplicate(node: Node, columns: Columns) -> Deduplicate:
    fields = node.read_fields("the deduplication of events", ("by", "within"))
    id_node = fields["by"]
    id_nodes = id_node.read_items("'by'") if id_node.is_list else [id_node]
    names = [columns.find_column(column) for column in id_nodes]
    within = fields["within"].read_duration("the horizon")
    with id_node.locate_errors():
        return Deduplicate(names, within)


def _read_firing(node: Node) -> Firing:
    name, argument = node.read_choice("a firing", ("every", "count", "arrival"))
    if name == "every":
        with argument.locate_errors():
            return Every(argument.read_duration("the interval", negative=True))
    if name == "count":
        return Count(argument.read_integer("the count", minimum=1))
    argument.read_fields("a firing by arrival", ())
    return EachArrival()


def _check_names(keys: Sequence[tuple[Node, str]], results: Sequence[Node]) -> None:
    seen: set[str] = set()
    result_names = [(node, node.read_text("a key")) for node in results]
    for node, name in [*keys, *result_names]:
        if not NAME.fullmatch(name):
            raise node.error(
                f"{node} is not a valid name for a result column: use lowercase letters, digits "
                "and underscores, and begin with a letter."
            )
        tables = [WINDOW_TABLES, _PANES]
        if (node, name) in keys:
            tables.insert(1, EVENT_TABLES)
        if table := find_table(name, *tables):
            raise node.error(
                f"{node} is reserved: Tidemark adds a column of this name to the {table}. Choose "
                "another name."
            )
        if name in seen:
            raise node.error(
                f"{node} is already the name of a key: remove it, or choose another name."
            )
        seen.add(name)


_WINDOWS: dict[str, tuple[Callable[..., Window], Sequence[str], Sequence[str]]] = {
    "tumbling": (Tumbling, ("size",), ("offset",)),
    "sliding": (Sliding, ("size", "slide"), ("offset",)),
    "cumulating": (Cumulating, ("size", "step"), ("offset",)),
    "session": (Session, ("gap",), ()),
    "calendar": (Calendar, ("unit",), ("timezone",)),
    "global": (Global, (), ()),
}


def read_window(node: Node) -> Window:
    """Return the window that a node describes."""
    name, inner = node.read_choice("a window", _WINDOWS)
    make, required, optional = _WINDOWS[name]
    fields = inner.read_fields(f"a {name} window", required, optional)
    if name == "calendar":
        texts = {key: value.read_text(f"the {key}") for key, value in fields.items()}
    else:
        texts = _read_durations(fields, allow_negative=True)
    with inner.locate_errors():
        return make(**texts)
