"""Components in YAML: a windowed asset, and event logs without a windowed asset.

# src/my_project/defs/orders_hourly/defs.yaml
type: tidemark.dagster.WindowedAsset
attributes:
  name: orders_hourly
  sources: {orders: {...}}
  connectors: {orders: {files: {format: csv, options: {header: true}}}}
  transform: {source: orders, window: {tumbling: {size: 1 hour}}, aggregates: {orders: count}}
  partitions_def: {type: daily, start_date: "2026-01-01"}
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import yaml
from dagster.components.resolved.core_models import (
    DailyPartitionsDefinitionModel,
    HourlyPartitionsDefinitionModel,
    TimeWindowPartitionsDefinitionModel,
    WeeklyPartitionsDefinitionModel,
    resolve_partitions_def,
)

from tidemark_assets.asset import dagster_asset
from tidemark_assets.component_scaffolders import EventLogsScaffolder, WindowedAssetScaffolder
from tidemark_assets.connector_nodes import read_ingestion
from tidemark_assets.plain_definitions import refuse_plain_definitions
from tidemark_streaming.scenario.read.definition import Title
from tidemark_streaming.scenario.read.parse import Definitions, read_definitions
from tidemark_streaming.scenario.read.reader import Node

__all__ = ["EventLogs", "WindowedAsset"]

_FILES = ("defs.yaml", "defs.yml")
"""The names that Dagster accepts for the file of a component."""
_PARSED = ("sources", "derived", "transform", "connectors")
"""The attributes that are read by the parser of scenarios."""


@dg.scaffold_with(WindowedAssetScaffolder)
@dataclass(kw_only=True)
class WindowedAsset(dg.Component, dg.Resolvable):
    """A windowed asset by Tidemark in YAML, with the event logs from which it is computed.

    `sources`, `derived` and `transform` are written as in Tidemark's scenarios. The asset is the
    same as one of `dagster_asset`. It needs no executor and no resource of the project.
    """

    name: str
    """The name of the asset, and of its table."""

    sources: Mapping[str, Any]
    """The sources by name, each with `event_time`, `columns` and `watermark`."""

    transform: Mapping[str, Any]
    """The `source`, `window`, `keys` and `aggregates`, and other options of the windows."""

    partitions_def: Annotated[
        dg.PartitionsDefinition[Any],
        dg.Resolver(
            resolve_partitions_def,
            model_field_type=HourlyPartitionsDefinitionModel
            | DailyPartitionsDefinitionModel
            | WeeklyPartitionsDefinitionModel
            | TimeWindowPartitionsDefinitionModel,
        ),
    ]
    """The time windows by which the asset is materialized."""

    connectors: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How events arrive, by source. A source without one has its event log elsewhere."""

    derived: Mapping[str, Any] | None = None
    """Joins, as-of joins, unions, chains and row assets, by name."""

    description: str = ""
    """The description of the asset."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        # Dagster describes all installed components after it has loaded the folder of a project.
        # It has no other hook for what it has skipped there.
        refuse_plain_definitions()
        return super().get_spec()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        attributes_by_name = {
            "sources": self.sources,
            "derived": self.derived,
            "transform": self.transform,
            "connectors": self.connectors,
        }
        attributes = _read_attributes(context, attributes_by_name)
        definitions = self.read(attributes)
        assert definitions.transform is not None
        assets = _event_logs(definitions, attributes["connectors"])
        for source in definitions.derived.values():
            base = source.derivation.asset
            if base is not None:
                assets.append(dagster_asset(base, partitions_def=self.partitions_def))
        assets.append(dagster_asset(definitions.transform, partitions_def=self.partitions_def))
        return dg.Definitions(assets=assets)

    def read(self, attributes: Mapping[str, Node]) -> Definitions:
        """Return the definitions that attributes describe.

        Args:
            attributes: `sources`, `transform` and, if there is one, `derived`.
        """
        return read_definitions(attributes, Title(self.name, self.description, accumulation=None))


@dg.scaffold_with(EventLogsScaffolder)
@dataclass(kw_only=True)
class EventLogs(dg.Component, dg.Resolvable):
    """Event logs by Tidemark in YAML: of sources, joins, as-of joins, unions and row assets.

    `sources`, `derived` and `connectors` are written as in the component `WindowedAsset`, which
    reads the event logs of sources by their names.
    """

    sources: Mapping[str, Any]
    """The sources by name, each with `event_time`, `columns` and `watermark`."""

    connectors: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How events arrive, by source. A source without one has its event log elsewhere."""

    derived: Mapping[str, Any] | None = None
    """Joins, as-of joins, unions and row assets, by name."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        attributes_by_name = {
            "sources": self.sources,
            "derived": self.derived,
            "connectors": self.connectors,
        }
        attributes = _read_attributes(context, attributes_by_name)
        definitions = read_definitions(attributes)
        for source in definitions.derived.values():
            if source.derivation.asset is not None:
                raise attributes["derived"].error(
                    f"'{source.name}' is a chain, whose windows need partitions: define it in the "
                    "component tidemark.dagster.WindowedAsset."
                )
        return dg.Definitions(assets=_event_logs(definitions, attributes["connectors"]))


def _event_logs(definitions: Definitions, connectors: Node) -> list[dg.AssetsDefinition]:
    """Return the assets of event logs: of sources with a connector, and of derived sources."""
    assets = list[dg.AssetsDefinition]()
    for key, value in connectors.read_entries("'connectors'"):
        source = definitions.sources[key.read_word("a source", list(definitions.sources))]
        assets.append(dagster_asset(read_ingestion(source, value)))
    for derived_source in definitions.derived.values():
        assets.append(dagster_asset(derived_source))
    return assets


def _read_attributes(
    context: dg.ComponentLoadContext, values: Mapping[str, Any]
) -> dict[str, Node]:
    """Return attributes as nodes, which know their lines in the YAML file.

    Args:
        values: the attributes of a component in a Python file, which has no YAML file.
    """
    path = context.component_path
    for name in _FILES:
        file = path.file_path / name
        if file.exists():
            document = path.instance_key if isinstance(path.instance_key, int) else 0
            return _read_nodes(file, file.read_text(), document, "attributes")
    attributes = dict[str, Any]()
    for name, value in values.items():
        if value is not None:
            attributes[name] = value
    return _read_nodes(path.file_path, yaml.safe_dump(attributes), 0)


def _read_nodes(file: Path, text: str, document: int, *keys: str) -> dict[str, Node]:
    """Return the attributes in a document of a YAML file, at a path of keys."""
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    node = Node(file, documents[document])
    for name in keys:
        node = dict(_by_name(node))[name]
    empty = Node(file, yaml.MappingNode("tag:yaml.org,2002:map", [], node.raw.start_mark))
    return {"connectors": empty} | {k: n for k, n in _by_name(node) if k in _PARSED}


def _by_name(node: Node) -> Iterator[tuple[str, Node]]:
    for key, value in node.read_entries("the attributes"):
        yield key.read_text("a key"), value
