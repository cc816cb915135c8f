"""The product's definitions for the sources and nodes of a case."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from helpers.graph.case import SECOND, Part
from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource, own_columns
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.expect import between
from tidemark_streaming.kafka.topic import KafkaSink

COLUMNS = {"t": "TIMESTAMP", "k": "STRING", "v": "BIGINT", "id": "STRING"}
_EXCLUDED = 2
"""The value that the function `some` filters out."""


@dataclass(frozen=True)
class Definitions:
    """The definitions of a project, by name: its plain sources, derived sources, and assets, and
    the published asset of each sink and of each mart."""

    sources: Mapping[str, Source]
    derived: Mapping[str, DerivedSource]
    assets: Mapping[str, Definition]
    sinks: Mapping[str, Definition]
    marts: Mapping[str, Definition]

    def source(self, name: str) -> Source:
        return self.derived[name] if name in self.derived else self.sources[name]


def define(sources: Part, nodes: Part) -> Definitions:
    """Return the definitions that a case describes.

    Raises:
        DefinitionError: the case is not valid.
    """
    plain = {name: _source(name, spec) for name, spec in sources.items()}
    derived = dict[str, DerivedSource]()
    assets = dict[str, Definition]()
    sinks = dict[str, Definition]()
    marts = dict[str, Definition]()
    topics = {node["of"]: KafkaSink(name) for name, node in nodes.items() if _is_sink(node)}
    for name, node in nodes.items():
        known: dict[str, Source] = {**plain, **derived}
        if node["kind"] == "asset":
            assets[name] = _asset(name, node, known[node["source"]], topics.get(name))
        elif _is_sink(node):
            sinks[name] = assets[node["of"]]
        elif node["kind"] == "mart":
            marts[name] = assets[node["of"]]
        elif node["kind"] == "rollup":
            size = Tumbling(_seconds(node["size"]))
            assets[name] = rollup(of=assets[node["of"]], name=name, window=size)
        elif node["kind"] == "chain":
            derived[name] = chain(name=name, of=assets[node["of"]], rows=node["rows"])
        else:
            derived[name] = _MAKERS[node["kind"]](name, node, known)
    return Definitions(plain, derived, assets, sinks, marts)


def _is_sink(node: Part) -> bool:
    return node["kind"] == "sink"


def value_column(source: Source) -> str:
    """Return the column of a source that its assets add up."""
    return next(c for c in own_columns(source) if source.columns[c].upper() == "BIGINT")


def keeps(function: str, value: int | None) -> bool:
    """Return whether a function of a case keeps a row with a value."""
    return function == "all" or value != _EXCLUDED


def _source(name: str, spec: Part) -> Source:
    return Source(
        name=name,
        columns={**COLUMNS, "id": spec.get("id", "STRING"), **spec.get("more", {})},
        event_time="t",
        watermark=BoundedOutOfOrderness(_seconds(spec["bound"]), idle="3 seconds"),
        heartbeat="1 second",
        max_future_skew="1 day" if spec.get("skew") else None,
    )


def _function(name: str, source: Source, function: str) -> Callable[[DataFrame], DataFrame]:
    if function == "all":

        def prepare(rows: DataFrame) -> DataFrame:
            return rows
    else:
        condition = f"coalesce(`{value_column(source)}`, 0) != {_EXCLUDED}"

        def prepare(rows: DataFrame) -> DataFrame:
            return rows.where(condition)

    prepare.__name__ = name
    return prepare


def _asset(name: str, node: Part, source: Source, sink: KafkaSink | None) -> WindowedTransform:
    if lacking := [key for key in node["keys"] if key not in source.columns]:
        # The product finds this when the asset runs.
        raise DefinitionError(f"'{source.name}' has no column '{lacking[0]}'.")
    if "session" in node and "retraction" in source.columns:
        raise DefinitionError("The oracle has no retractions in sessions.")
    column = value_column(source)
    aggregates = {"n": agg.count(), "total": agg.sum(column)}
    if node.get("greatest"):
        aggregates["greatest"] = agg.max(column)
    return WindowedTransform(
        name=name,
        description="An asset of a random graph.",
        source=source,
        keys=tuple(node["keys"]),
        window=_window(node),
        allowed_lateness=node["lateness"] * SECOND,
        aggregates=aggregates,
        function=_function(name, source, node["function"]),
        expectations=() if node.get("most") is None else (between("n", max_value=node["most"]),),
        sink=sink,
        accumulation=None if sink is None else "retracting",
    )


def _window(node: Part) -> Window:
    if "session" in node:
        return Session(_seconds(node["session"]))
    size = _seconds(node["size"])
    if "slide" in node:
        return Sliding(size, _seconds(node["slide"]))
    return Tumbling(size)


def _union(name: str, node: Part, known: Mapping[str, Source]) -> DerivedSource:
    return union(name=name, of=[known[base] for base in node["of"]], idle=node.get("idle"))


def _row_asset(name: str, node: Part, known: Mapping[str, Source]) -> DerivedSource:
    source = known[node["source"]]
    return row_asset(source=source)(_function(name, source, node["function"]))


def renames(node: Part, known: Mapping[str, Source]) -> dict[str, str]:
    """Return the names of the columns of a join, by `BASE.COLUMN`."""
    return {
        f"{node[side]}.{column}": f"{side[0]}_{column}"
        for side in ("left", "right")
        for column in own_columns(known[node[side]])
        if column != "k"
    }


def _join(name: str, node: Part, known: Mapping[str, Source]) -> DerivedSource:
    lateness = node["lateness"]
    return join(
        name=name,
        left=known[node["left"]],
        right=known[node["right"]],
        on=["k"],
        within=Between(*map(_seconds, node["within"])),
        how=node["how"],
        allowed_lateness=None if lateness is None else _seconds(lateness),
        rename=renames(node, known),
    )


def _as_of(name: str, node: Part, known: Mapping[str, Source]) -> DerivedSource:
    return asof_join(
        name=name,
        left=known[node["left"]],
        right=known[node["right"]],
        on=["k"],
        how=node["how"],
        allowed_lateness=_seconds(node["lateness"]),
        rename=renames(node, known),
    )


_MAKERS: Mapping[str, Callable[[str, Part, Mapping[str, Source]], DerivedSource]] = {
    "union": _union,
    "row_asset": _row_asset,
    "join": _join,
    "as_of": _as_of,
}


def _seconds(number: int) -> str:
    return f"{number} seconds"
