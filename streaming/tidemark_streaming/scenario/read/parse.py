"""Parse a scenario file: the arrivals, the transform over them, and the expected result.

A file with an error raises a `ScenarioError`, whose message names the file, the line and the
allowed values.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.aggregates.means import average_slack
from tidemark.define.aggregates.totals import ROUNDING, total_slack
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.row_function import make_row_function
from tidemark.define.source import Source, lookup_name
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.scenario.read import definition
from tidemark_streaming.scenario.read.arrivals import (
    ONLY,
    TICK,
    ScenarioArrival,
    Table,
    read_arrivals,
    read_lookups,
)
from tidemark_streaming.scenario.read.columns import Columns, Kind, any_value, columns_of
from tidemark_streaming.scenario.read.derived import read_derived
from tidemark_streaming.scenario.read.expectation import Expect, expect_windows, read_expectation
from tidemark_streaming.scenario.read.reader import Node, read_yaml

_REQUIRED = ("name", "source", "arrivals", "transform")
_OPTIONAL = ("open", "expect", "clock_start")
_BY_ASSET = ("name", "asset", "arrivals")
_BY_SOURCES = ("name", "sources", "arrivals")


@dataclass(frozen=True)
class Scenario:
    """The content of a scenario file: sources, arrivals, the transform, and the expected result.

    Args:
        name: the scenario's name in results.
        sources: the sources that are not derived, by name.
        arrivals: the arrivals in order, including steps of the clock and the ends of sources.
        windowed: the transform that the scenario runs; None if it has none.
        expect: the expected result; None if the scenario has none.
        clock_start: the processing clock at the beginning, in microseconds.
        derived: the derived sources, by name, each after the sources that it reads.
        lookups: the lookup tables of the transform's source, by name.
    """

    name: str
    path: Path
    sources: Mapping[str, Source]
    arrivals: tuple[ScenarioArrival, ...]
    windowed: WindowedTransform | None
    expect: Expect | None
    clock_start: int
    derived: Mapping[str, DerivedSource] = field(default_factory=dict[str, DerivedSource])
    lookups: Mapping[str, Table] = field(default_factory=dict[str, Table])

    @property
    def transform(self) -> WindowedTransform:
        """The transform of a scenario that has one."""
        assert self.windowed is not None
        return self.windowed

    @property
    def source(self) -> Source:
        """The transform's source or, without a transform, the last source of the scenario.

        The watermark in a result is the watermark of this source.
        """
        if self.windowed is not None:
            return self.windowed.source
        return [*self.sources.values(), *self.derived.values()][-1]

    def arrivals_of(self, source: Source) -> Sequence[ScenarioArrival]:
        """Return the arrivals of one source."""
        return [arrival for arrival in self.arrivals if arrival.source == source.name]

    def count_arrivals(self, source: Source) -> int:
        """Return the number of arrivals of a source.

        A derived source has one arrival for each arrival of its bases.
        """
        if isinstance(source, DerivedSource):
            return sum(map(self.count_arrivals, source.base_sources))
        return len(self.arrivals_of(source))

    @property
    def slack(self) -> dict[str, float]:
        """How far each sum or average can differ because of the order of addition, by aggregate."""
        if self.windowed is None:
            return {}
        sizes = list[float]()
        for arrival in self.arrivals:
            for row in arrival.rows:
                for value in row:
                    if isinstance(value, float) and math.isfinite(value):
                        sizes.append(abs(value))
        # An event of a base may be in many events of the derived source.
        copies = len(sizes) if self.derived else 1
        max_difference = ROUNDING * (len(sizes) * copies + 1) * sum(sizes) * copies
        slack = dict[str, float]()
        for name, aggregate in self.windowed.aggregates.items():
            if aggregate.slack in (average_slack, total_slack):
                slack[name] = max_difference
        return slack

    @property
    def prepares_rows(self) -> bool:
        """Return whether a function prepares the events' rows, or a condition in SQL filters them.

        Only a transform that the scenario imports as an `asset` has such a function.
        """
        return self.transform.function is not make_row_function()


@dataclass(frozen=True)
class Definitions:
    """The definitions of a scenario, and the types of the transform's results.

    Args:
        derived: the derived sources, each after the sources that it reads.
    """

    sources: Mapping[str, Source]
    derived: Mapping[str, DerivedSource]
    transform: WindowedTransform | None
    results: Mapping[str, Kind]


def import_asset(node: Node) -> object:
    """Return the object named by `MODULE:NAME`, such as `shop.transforms:orders_per_hour`."""
    module, _, name = node.read_text("an asset").partition(":")
    if not module or not name:
        raise node.error(
            f"{node} is not an asset: write MODULE:NAME, as in shop.transforms:orders_per_hour."
        )
    with node.locate_errors():
        try:
            imported = import_module(module)
        except ImportError as error:
            raise node.error(
                f"the module '{module}' can't be imported: {error}. Run from a folder with a "
                "tidemark.toml, or add the module's folder to PYTHONPATH."
            ) from None
    if not hasattr(imported, name):
        available = list[str]()
        for variable, value in vars(imported).items():
            if isinstance(value, WindowedTransform):
                available.append(variable)
        raise node.error(
            f"'{module}' has no '{name}'; its transforms are {', '.join(available) or 'none'}."
        )
    return getattr(imported, name)


def load_scenario(path: Path, find_asset: Callable[[Node], object] = import_asset) -> Scenario:
    """Parse the scenario in a file.

    Args:
        find_asset: returns the object that the file's `asset` names.
    """
    root = read_yaml(path)
    keys = [key.raw.value for key, _ in root.read_entries("a scenario")]
    if "asset" in keys:
        fields = root.read_fields(
            "a scenario of an asset", _BY_ASSET, (*_OPTIONAL, "tick", "lookups")
        )
        definitions = _read_asset(fields, find_asset)
    elif "sources" in keys:
        optional = ("derived", "transform", *_OPTIONAL, "tick")
        fields = root.read_fields("a scenario of several sources", _BY_SOURCES, optional)
        definitions = read_definitions(fields)
    else:
        fields = root.read_fields("a scenario", _REQUIRED, (*_OPTIONAL, "sources", "asset"))
        definitions = _read_source(fields)
    lookups = dict[str, Table]()
    if "asset" in fields:
        lookups = _read_lookups(fields, root, definitions.transform)
    clock_start = 0
    if "clock_start" in fields:
        clock_start = fields["clock_start"].read_instant("the clock's start")
    is_open = "open" in fields and fields["open"].read_boolean("'open'")
    columns = {name: columns_of(source) for name, source in definitions.sources.items()}
    arrivals = read_arrivals(
        fields["arrivals"],
        definitions.sources,
        columns,
        clock_start,
        _read_tick(fields, definitions),
        ends=not is_open,
    )
    expected = None
    if "expect" in fields:
        expected = _read_expectation(fields["expect"], definitions)
    return Scenario(
        name=fields["name"].read_text("a name"),
        path=path,
        sources=definitions.sources,
        arrivals=arrivals,
        windowed=definitions.transform,
        expect=expected,
        clock_start=clock_start,
        derived=definitions.derived,
        lookups=lookups,
    )


def _read_asset(fields: Mapping[str, Node], find: Callable[[Node], object]) -> Definitions:
    with fields["asset"].locate_errors():
        transform = _prepare_asset(find(fields["asset"]))
        if "clock_start" not in fields:
            transform = _without_skew(transform)
        results = _result_types(transform, columns_of(transform.source).types)
        sources = dict[str, Source]()
        derived = dict[str, DerivedSource]()
        _add_source(transform.source, sources, derived)
        if "clock_start" not in fields:
            _check_skew(sources.values())
    return Definitions(sources, derived, transform, results)


def _add_source(
    source: Source, sources: dict[str, Source], derived: dict[str, DerivedSource]
) -> None:
    """Add a source to `sources` or, after its bases, to `derived`."""
    if not isinstance(source, DerivedSource):
        sources[source.name] = source
        return
    for base in source.base_sources:
        _add_source(base, sources, derived)
    derived[source.name] = source


def read_definitions(
    fields: Mapping[str, Node], title: definition.Title = definition.SCENARIO
) -> Definitions:
    """Return the definitions of a text with the fields `sources`, `derived` and `transform`."""
    named = fields["sources"].read_entries("'sources'")
    if not named:
        raise fields["sources"].error("a scenario needs at least one source.")
    sources = dict[str, Source]()
    for key, value in named:
        name = key.raw.value
        sources[name] = definition.read_source(name, value)
    derived = dict[str, DerivedSource]()
    if "derived" in fields:
        derived = read_derived(fields["derived"], sources)
    if "transform" not in fields:
        return Definitions(sources, derived, None, {})
    readable = {**sources, **derived}
    transform, results = definition.read_transform(
        fields["transform"], readable, named=True, title=title
    )
    return Definitions(sources, derived, transform, results)


def _read_source(fields: Mapping[str, Node]) -> Definitions:
    sources = {ONLY: definition.read_source(ONLY, fields["source"])}
    transform, results = definition.read_transform(fields["transform"], sources, named=False)
    return Definitions(sources, {}, transform, results)


def _read_tick(fields: Mapping[str, Node], definitions: Definitions) -> int | None:
    """Return the microseconds by which each arrival advances the clock.

    Return None if the scenario has only one source: only `clock` steps then advance the clock.
    """
    if "sources" not in fields and not definitions.derived:
        if "tick" in fields:
            raise fields["tick"].error("'tick' is for scenarios of several sources: remove it.")
        return None
    tick = TICK
    if "tick" in fields:
        tick = fields["tick"].read_duration("the tick")
    return parse_duration(tick)


def _read_lookups(
    fields: Mapping[str, Node], root: Node, transform: WindowedTransform | None
) -> dict[str, Table]:
    assert transform is not None
    source = transform.source
    if "lookups" in fields:
        return read_lookups(fields["lookups"], source)
    if source.lookups:
        raise root.error(
            f"source '{source.name}' has lookup tables: add 'lookups', with the columns and rows "
            f"of each ({', '.join(source.lookups)})."
        )
    return {}


def _read_expectation(node: Node, definitions: Definitions) -> Expect:
    over = definitions.transform
    windows = dict[str, Columns]()
    if over is not None:
        windows = expect_windows(definitions.results, over.keys, columns_of(over.source))
    expected = read_expectation(node, windows, definitions.derived)
    if over is not None and expected.panes and over.accumulation is None:
        raise node.error(
            f"'{over.name}' has no panes, because it has no accumulation: set its accumulation, or "
            "remove 'panes'."
        )
    return expected


def _prepare_asset(asset: object) -> WindowedTransform:
    """Return the transform as a scenario runs it: without a sink, and with lookup tables in the
    scenario's database.
    """
    if not isinstance(asset, WindowedTransform):
        raise DefinitionError(
            f"a scenario can run only a `windowed_asset` (got a {type(asset).__name__})."
        )
    near = tuple(map(lookup_name, asset.source.lookups))
    return replace(asset, source=replace(asset.source, lookups=near), sink=None)


def _result_types(transform: WindowedTransform, columns: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return the types of a transform's keys and aggregates, as far as known before a run."""
    keys = {key: columns.get(key, any_value()) for key in transform.keys}
    return keys | {name: any_value() for name in transform.aggregates}


def _without_skew(transform: WindowedTransform) -> WindowedTransform:
    """Return the transform with a source that accepts event times after the processing time.

    If a scenario sets no clock, its processing times are not comparable with event times.
    """
    return replace(transform, source=replace(transform.source, max_future_skew=None))


def _check_skew(sources: Iterable[Source]) -> None:
    """Refuse sources with `max_future_skew`.

    They compare event times with the clock, which a scenario without `clock_start` does not set.
    """
    for source in sources:
        if source.max_future_skew is not None:
            raise DefinitionError(
                f"source '{source.name}' has max_future_skew, so the scenario needs 'clock_start'."
            )
