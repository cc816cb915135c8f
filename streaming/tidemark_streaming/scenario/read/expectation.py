"""The expected result of a scenario."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.define.triggers.trigger import EARLY, LATE, ON_TIME
from tidemark_streaming.scenario.read.columns import BIGINT, BOOLEAN, BOUND, DOUBLE, Kind
from tidemark_streaming.scenario.read.reader import Node

_BOUNDS = {"window_start": BOUND, "window_end": BOUND}
_TIMING = Kind("a firing", lambda node: node.word("a firing", (EARLY, ON_TIME, LATE)))
_PUBLISHED = {"revision": BIGINT, "timing": _TIMING, "final": BOOLEAN, "late_events": BIGINT}
_FIRED = {"pane": BIGINT, "timing": _TIMING, "last": BOOLEAN, "retraction": BOOLEAN}


@dataclass(frozen=True)
class Expect:
    """The expected rows of a result. The result must not have any other rows.

    Only the columns that an expected row names are compared. A part that is None is not compared.
    Values are Python objects by the type of their column: times are aware datetimes (`+infinity` is
    the last one), decimals are Decimals, collected values are lists.
    """

    windows: list[dict[str, Any]] | None = None
    panes: list[dict[str, Any]] | None = None
    late: list[dict[str, Any]] | None = None


def expect(
    node: Node,
    results: Mapping[str, Kind],
    keys: Collection[str],
    columns: Mapping[str, Kind],
) -> Expect:
    """Return a scenario's expectation.

    Args:
        results: the types of the result's columns.
        keys: the names of those that are keys.
        columns: the types of the source's columns.
    """
    by = {name: kind for name, kind in results.items() if name in keys}
    values = {name: kind for name, kind in results.items() if name not in keys}
    parts: dict[str, dict[str, Kind]] = {
        "windows": {**_BOUNDS, **by, **values, **_PUBLISHED},
        "panes": {**_BOUNDS, **by, **_FIRED, **values},
        "late": {**columns, **_BOUNDS, "watermark": BOUND, "lateness_seconds": DOUBLE},
    }
    given = node.fields("an expectation", (), tuple(parts))
    return Expect(**{part: _rows(rows, part, parts[part]) for part, rows in given.items()})


def _rows(node: Node, part: str, kinds: Mapping[str, Kind]) -> list[dict[str, Any]]:
    rows = node.items(f"'{part}'")
    return [
        {
            column: kinds[column].read(value, column)
            for column, value in row.fields(f"a row of '{part}'", (), tuple(kinds)).items()
        }
        for row in rows
    ]
