"""The expected result of a scenario."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.triggers.trigger import EARLY, LATE, ON_TIME
from tidemark_streaming.scenario.read.columns import (
    BIGINT,
    BOOLEAN,
    BOUND,
    DOUBLE,
    TEXT,
    Columns,
    Kind,
    columns_of,
)
from tidemark_streaming.scenario.read.reader import Node

_BOUNDS = {"window_start": BOUND, "window_end": BOUND}
_TIMING = Kind("a firing", lambda node: node.read_word("a firing", (EARLY, ON_TIME, LATE)))
_PUBLISHED = {"revision": BIGINT, "timing": _TIMING, "final": BOOLEAN, "late_events": BIGINT}
_FIRED = {"pane": BIGINT, "timing": _TIMING, "last": BOOLEAN, "retraction": BOOLEAN}
_ARRIVED = {"arrival": BIGINT, "watermark": BOUND}
_UNJOINED = {"source": TEXT, "reason": TEXT, **_ARRIVED}

_Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Expect:
    """The expected rows of a result. The result must not have any other rows.

    Only the columns that an expected row names are compared. If `windows`, `panes` or `late` is
    None, it is not compared.
    The Python type of a value depends on its column: times are aware datetimes (`+infinity` is the
    latest possible time), decimals are Decimals, collected values are lists.

    Args:
        derived: the events of each derived source, by its name.
        unjoined: the rows that take no part in a derived source, by its name.
    """

    windows: _Rows | None = None
    panes: _Rows | None = None
    late: _Rows | None = None
    derived: Mapping[str, _Rows] = field(default_factory=dict[str, _Rows])
    unjoined: Mapping[str, _Rows] = field(default_factory=dict[str, _Rows])


def expect_windows(
    results: Mapping[str, Kind], keys: Collection[str], columns: Columns
) -> dict[str, Columns]:
    """Return the columns of an expectation's `windows`, `panes` and `late`.

    Args:
        results: the types of the keys and aggregates.
        keys: the names of the keys.
        columns: the columns of the transform's source.
    """
    key_kinds = {name: kind for name, kind in results.items() if name in keys}
    values = {name: kind for name, kind in results.items() if name not in keys}
    of_keys = {alias: name for alias, name in columns.aliases.items() if name in keys}
    late = {**columns.types, **_BOUNDS, "watermark": BOUND, "lateness_seconds": DOUBLE}
    return {
        "windows": Columns({**_BOUNDS, **key_kinds, **values, **_PUBLISHED}, of_keys),
        "panes": Columns({**_BOUNDS, **key_kinds, **_FIRED, **values}, of_keys),
        "late": Columns(late, columns.aliases),
    }


def read_expectation(
    node: Node, windows: Mapping[str, Columns], derived: Mapping[str, DerivedSource]
) -> Expect:
    """Return a scenario's expectation.

    Args:
        windows: the result of `expect_windows`; empty if the scenario has no transform.
        derived: the derived sources, by name.
    """
    of_derived = {"derived": _rows_of, "unjoined": _unjoined_of} if derived else {}
    fields = node.read_fields("an expectation", (), (*windows, *of_derived))
    parts = dict[str, Any]()
    for part, columns in windows.items():
        if part in fields:
            parts[part] = _read_rows(fields[part], part, columns)
    for part, columns_in in of_derived.items():
        if part in fields:
            named = fields[part].read_fields(f"'{part}'", (), tuple(derived))
            parts[part] = {
                name: _read_rows(rows, name, columns_in(derived[name]))
                for name, rows in named.items()
            }
    return Expect(**parts)


def _rows_of(source: DerivedSource) -> Columns:
    columns = columns_of(source)
    return Columns({**columns.types, **_ARRIVED}, columns.aliases)


def _unjoined_of(source: DerivedSource) -> Columns:
    types = {
        name: kind for b in source.base_sources[::-1] for name, kind in columns_of(b).types.items()
    }
    return Columns(types | _UNJOINED)


def _read_rows(node: Node, part: str, columns: Columns) -> _Rows:
    return [_read_row(row, part, columns) for row in node.read_items(f"'{part}'")]


def _read_row(node: Node, part: str, columns: Columns) -> dict[str, Any]:
    fields = node.read_fields(f"a row of '{part}'", (), (*columns.types, *columns.aliases))
    values = dict[str, Any]()
    for text, value in fields.items():
        name = text if text in columns.types else columns.aliases[text]
        if name in values:
            raise value.error(
                f"the row gives the column '{name}' twice, the second time as '{text}': remove one "
                "of them."
            )
        values[name] = columns.types[name].read_value(value, name)
    return values
