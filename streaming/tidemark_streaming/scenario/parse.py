"""A scenario: a stream in a text file, what is computed over it, and what must come out.

A file that does not keep to the format raises a `ScenarioError`: one sentence that names the file,
the line and what is allowed there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemark.base.instants import INFINITY, duration, instant
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import Manual
from tidemark_streaming.scenario import definition
from tidemark_streaming.scenario.columns import Kind
from tidemark_streaming.scenario.expectation import Expect, expect
from tidemark_streaming.scenario.reader import Node, read

_REQUIRED = ("name", "source", "arrivals", "transform")
_OPTIONAL = ("open", "expect", "clock_start")


@dataclass(frozen=True)
class ScenarioArrival:
    """One arrival of a scenario's stream.

    Args:
        rows: the events, each with its values in the order of the source's columns; a `timestamp`
            in microseconds.
        clock: its processing time, in microseconds.
        watermark: the watermark after it, where the scenario gives one.
        ends: whether the stream ends with it.
    """

    rows: tuple[tuple[Any, ...], ...]
    clock: int
    watermark: int | None = None
    ends: bool = False


@dataclass(frozen=True)
class Scenario:
    """A scenario.

    Args:
        name: what it is called in results.
        path: its file.
        source: where its events come from.
        arrivals: in their order, with the heartbeats that move the clock and the stream's end.
        transform: what is computed.
        expect: what must come out, where the scenario says so.
        clock_start: the processing clock at the beginning, in microseconds.
    """

    name: str
    path: Path
    source: Source
    arrivals: tuple[ScenarioArrival, ...]
    transform: WindowedTransform
    expect: Expect | None
    clock_start: int


def load(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        ScenarioError: the file can't be read, or something in it is not lawful.
    """
    given = read(path).fields("a scenario", _REQUIRED, _OPTIONAL)
    source, types = definition.source(given["source"])
    transform, results = definition.transform(given["transform"], source, types)
    begins = given["clock_start"].instant("the clock's start") if "clock_start" in given else 0
    arrivals = _arrivals(given["arrivals"], source, types, begins)
    if "open" not in given or not given["open"].boolean("'open'"):
        arrivals.append(ScenarioArrival((), arrivals[-1].clock if arrivals else begins, ends=True))
    keys = {key: types[key] for key in transform.keys}
    return Scenario(
        name=given["name"].text("a name"),
        path=path,
        source=source,
        arrivals=tuple(arrivals),
        transform=transform,
        expect=expect(given["expect"], keys, results, types) if "expect" in given else None,
        clock_start=begins,
    )


def _arrivals(
    node: Node, source: Source, types: Mapping[str, Kind], clock: int
) -> list[ScenarioArrival]:
    found: list[ScenarioArrival] = []
    for item in node.items("'arrivals'"):
        name, given = item.choice("an arrival", ("rows", "watermark", "clock"))
        if name == "rows":
            rows = tuple(_row(row, types) for row in given.items("'rows'"))
            found.append(ScenarioArrival(rows, clock))
        elif name == "clock":
            clock += duration(given.duration("a step of the clock"))
            if clock >= INFINITY:
                raise given.wrong("the clock would pass the year 9999.")
            found.append(ScenarioArrival((), clock))
        elif isinstance(source.watermark, Manual):
            found.append(ScenarioArrival((), clock, given.instant("a watermark")))
        else:
            raise item.wrong(
                "only a source whose watermark is {manual: {}} is given one; this one's is "
                f"{source.watermark}."
            )
    return found


def _row(node: Node, types: Mapping[str, Kind]) -> tuple[Any, ...]:
    """A row's values; a column that it does not name is null."""
    given = node.fields("a row", (), tuple(types))
    values = (
        types[column].read(given[column], column) if column in given else None for column in types
    )
    return tuple(instant(v) if isinstance(v, datetime) and v.tzinfo else v for v in values)
