"""A component with a windowed asset in YAML.

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
from pydantic import BaseModel, Field

from tidemark.define.source import Source
from tidemark_assets.asset import dagster_asset
from tidemark_assets.plain_definitions import refuse_plain_definitions
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector
from tidemark_streaming.scenario.read.definition import Title
from tidemark_streaming.scenario.read.parse import Definitions, read_definitions
from tidemark_streaming.scenario.read.reader import Node

__all__ = ["WindowedAsset"]

_CSV = {"format": "csv", "options": {"header": True}}
_FORMATS = ("csv", "json", "parquet")
_FILES = ("defs.yaml", "defs.yml")
"""The names that Dagster accepts for the file of a component."""
_PARSED = ("sources", "derived", "transform", "connectors")
"""The attributes that are read by the parser of scenarios."""


class WindowedAssetParams(BaseModel):
    """The parameters of `dg scaffold defs tidemark.dagster.WindowedAsset NAME`."""

    source: str = Field(default="events", description="The name of the source.")
    event_time: str = Field(
        default="at", description="The column with the time at which an event happened."
    )
    key: str | None = Field(default=None, description="A column by which events are grouped.")
    window: str = Field(default="1 hour", description="The size of the windows.")
    start_date: str = Field(default="2026-01-01", description="The day of the first partition.")


class WindowedAssetScaffolder(dg.Scaffolder[WindowedAssetParams]):
    """Writes the `defs.yaml` of a windowed asset that counts the events in CSV files."""

    @classmethod
    def get_scaffold_params(cls) -> type[WindowedAssetParams]:
        return WindowedAssetParams

    def scaffold(self, request: dg.ScaffoldRequest[WindowedAssetParams]) -> None:
        params = request.params
        columns = {params.event_time: "timestamp"}
        transform: dict[str, Any] = {"source": params.source}
        if params.key is not None:
            columns[params.key] = "string"
            transform["keys"] = [params.key]
        transform["window"] = {"tumbling": {"size": params.window}}
        transform["allowed_lateness"] = params.window
        transform["aggregates"] = {"number": "count"}
        source = {
            "event_time": params.event_time,
            "columns": columns,
            "watermark": {"bounded_out_of_orderness": "10 minutes"},
        }
        attributes = {
            "name": request.target_path.name,
            "sources": {params.source: source},
            "connectors": {params.source: {"files": _CSV}},
            "transform": transform,
            "partitions_def": {"type": "daily", "start_date": params.start_date},
        }
        dg.scaffold_component(request, attributes)


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
    """How events arrive, by source: `files`. A source without one has its event log elsewhere."""

    derived: Mapping[str, Any] | None = None
    """Joins, as-of joins, unions and chains, by name."""

    description: str = ""
    """The description of the asset."""

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        # Dagster describes all installed components after it has loaded the folder of a project.
        # It has no other hook for what it has skipped there.
        refuse_plain_definitions()
        return super().get_spec()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        attributes = self._read_attributes(context)
        definitions = self.read(attributes)
        assert definitions.transform is not None
        assets: list[dg.AssetsDefinition] = []
        for key, value in attributes["connectors"].read_entries("'connectors'"):
            source = definitions.sources[key.read_word("a source", list(definitions.sources))]
            assets.append(dagster_asset(_read_ingestion(source, value)))
        assets += map(dagster_asset, definitions.derived.values())
        assets.append(dagster_asset(definitions.transform, partitions_def=self.partitions_def))
        return dg.Definitions(assets=assets)

    def read(self, attributes: Mapping[str, Node]) -> Definitions:
        """Return the definitions that attributes describe.

        Args:
            attributes: `sources`, `transform` and, if there is one, `derived`.
        """
        return read_definitions(attributes, Title(self.name, self.description, accumulation=None))

    def _read_attributes(self, context: dg.ComponentLoadContext) -> dict[str, Node]:
        """Return the attributes as nodes, which know their lines in the YAML file."""
        place = context.component_path
        file = next((f for name in _FILES if (f := place.file_path / name).exists()), None)
        if file is None:
            # The component stands in a Python file.
            given = {
                name: getattr(self, name) for name in _PARSED if getattr(self, name) is not None
            }
            return _read_nodes(place.file_path, yaml.safe_dump(given), 0)
        document = place.instance_key if isinstance(place.instance_key, int) else 0
        return _read_nodes(file, file.read_text(), document, "attributes")


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


def _read_ingestion(source: Source, node: Node) -> Ingestion:
    """Return the connection of a source to the connector that a node describes."""
    _, files = node.read_choice("a connector", ("files",))
    fields = files.read_fields("a connector of files", ("format",), ("options", "names"))
    arguments: dict[str, Any] = {"format": fields["format"].read_word("a format", _FORMATS)}
    if "options" in fields:
        arguments["options"] = {
            key.read_text("an option"): _read_option(value)
            for key, value in fields["options"].read_entries("'options'")
        }
    if "names" in fields:
        arguments["names"] = fields["names"].read_text("a pattern of names")

    def connect(landing: str) -> FileConnector:
        return FileConnector(source, landing, **arguments)

    with files.locate_errors():
        # Refuses wrong options now, and not at the first file.
        connect(source.name)
    return Ingestion(source, connect)


def _read_option(node: Node) -> str | bool:
    """Return the value of an option: true, false or a text."""
    text = node.read_text("an option")
    if node.raw.tag == "tag:yaml.org,2002:bool":
        return node.read_boolean("an option")
    return text
