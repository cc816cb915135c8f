"""Parse a scenario file: the arrivals, the transform over them, and the expected result.

A file with an error raises a `ScenarioError`, whose message names the file, the line and the
allowed values.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark.base.instants import INFINITY, duration
from tidemark.define.aggregates.means import average_slack
from tidemark.define.aggregates.totals import ROUNDING, total_slack
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import Manual
from tidemark_streaming.scenario.read import asset, definition
from tidemark_streaming.scenario.read.columns import Kind
from tidemark_streaming.scenario.read.expectation import Expect, expect
from tidemark_streaming.scenario.read.lookups import Table, read_lookups, row_of
from tidemark_streaming.scenario.read.reader import Node, read

_REQUIRED = ("name", "source", "arrivals", "transform")
_OPTIONAL = ("open", "expect", "clock_start")
_BY_ASSET = ("name", "asset", "arrivals")


@dataclass(frozen=True)
class ScenarioArrival:
    """One arrival of a scenario's source.

    Args:
        rows: the events, each with its values in the order of the source's columns; a `timestamp`
            in microseconds.
        clock: its processing time, in microseconds.
        watermark: the watermark after it, if the scenario sets one.
        ends: true if the source ends with it.
        silent_since: for a heartbeat, the clock at the last item with rows. The steps of the clock
            are heartbeats if the source has any.
    """

    rows: tuple[tuple[Any, ...], ...]
    clock: int
    watermark: int | None = None
    ends: bool = False
    silent_since: int | None = None


@dataclass(frozen=True)
class Scenario:
    """A parsed scenario.

    Args:
        name: its name in results.
        path: its file.
        source: the source of its events.
        arrivals: in order, including heartbeats that advance the clock and the end of the source.
        transform: the transform that it runs.
        expect: the expected result, if the scenario has one.
        clock_start: the processing clock at the beginning, in microseconds.
        lookups: the lookup tables of the transform, by name.
    """

    name: str
    path: Path
    source: Source
    arrivals: tuple[ScenarioArrival, ...]
    transform: WindowedTransform
    expect: Expect | None
    clock_start: int
    lookups: Mapping[str, Table] = field(default_factory=dict[str, Table])

    @property
    def slack(self) -> dict[str, float]:
        """By aggregate, how far a sum or average can differ because of the order of addition."""
        doubles = [v for a in self.arrivals for r in a.rows for v in r if isinstance(v, float)]
        sizes = [abs(v) for v in doubles if math.isfinite(v)]
        most = ROUNDING * (len(sizes) + 1) * sum(sizes)
        adding = (average_slack, total_slack)
        return {n: most for n, a in self.transform.aggregates.items() if a.slack in adding}

    @property
    def prepares(self) -> bool:
        """Return whether the transform is an asset, whose function prepares the events' rows."""
        return self.transform.function is not definition.keep_rows


def load(path: Path, find: Callable[[Node], object] = asset.import_asset) -> Scenario:
    """Parse the scenario in a file.

    Args:
        find: returns the object that the file's `asset` names.

    Raises:
        ScenarioError: the file can't be read, or its content is not valid.
    """
    root = read(path)
    tables: dict[str, Table] = {}
    if "asset" in [key.raw.value for key, _ in root.entries("a scenario")]:
        given = root.fields("a scenario of an asset", _BY_ASSET, (*_OPTIONAL, "lookups"))
        with given["asset"].locate_errors():
            transform = asset.prepare_asset(find(given["asset"]))
            if "clock_start" not in given:
                transform = asset.without_skew(transform)
            types = asset.column_types(transform)
        source, results = transform.source, asset.result_types(transform, types)
        tables = _lookups(given, root, source)
    else:
        given = root.fields("a scenario", _REQUIRED, (*_OPTIONAL, "asset"))
        source, types = definition.source(given["source"])
        transform, computed = definition.transform(given["transform"], source, types)
        results = {key: types[key] for key in transform.keys} | computed
    begins = given["clock_start"].instant("the clock's start") if "clock_start" in given else 0
    arrivals = _arrivals(given["arrivals"], source, types, begins)
    if "open" not in given or not given["open"].boolean("'open'"):
        arrivals.append(ScenarioArrival((), arrivals[-1].clock if arrivals else begins, ends=True))
    return Scenario(
        name=given["name"].text("a name"),
        path=path,
        source=source,
        arrivals=tuple(arrivals),
        transform=transform,
        expect=_expect(given["expect"], transform, results, types) if "expect" in given else None,
        clock_start=begins,
        lookups=tables,
    )


def _arrivals(
    node: Node, source: Source, types: Mapping[str, Kind], clock: int
) -> list[ScenarioArrival]:
    found: list[ScenarioArrival] = []
    silent_since = clock
    for item in node.items("'arrivals'"):
        name, given = item.choice("an arrival", ("rows", "watermark", "clock"))
        if name == "rows":
            rows = tuple(row_of(row, types) for row in given.items("'rows'"))
            found.append(ScenarioArrival(rows, clock))
            silent_since = clock if rows else silent_since
        elif name == "clock":
            clock += duration(given.duration("a step of the clock"))
            if clock >= INFINITY:
                raise given.error("the clock must not pass the year 9999.")
            silent = None if source.heartbeat is None else silent_since
            found.append(ScenarioArrival((), clock, silent_since=silent))
        elif isinstance(source.watermark, Manual):
            found.append(ScenarioArrival((), clock, given.instant("a watermark")))
        else:
            raise item.error(
                "only a source with the watermark {manual: {}} can have a watermark step; this "
                f"source has {source.watermark}."
            )
    return found


def _lookups(given: Mapping[str, Node], root: Node, source: Source) -> dict[str, Table]:
    if "lookups" in given:
        return read_lookups(given["lookups"], source)
    if source.lookups:
        raise root.error(
            f"source '{source.name}' is joined with {', '.join(source.lookups)}: add "
            "'lookups', with the columns and rows of each."
        )
    return {}


def _expect(
    node: Node, over: WindowedTransform, results: Mapping[str, Kind], types: Mapping[str, Kind]
) -> Expect:
    found = expect(node, results, over.keys, types)
    if found.panes and over.accumulation is None:
        raise node.error(f"'{over.name}' has no panes, because it has no accumulation.")
    return found
