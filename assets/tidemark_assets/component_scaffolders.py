"""Write the YAML files of components: `dg scaffold defs tidemark.dagster.WindowedAsset NAME`."""

from typing import Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

_Connector = Literal["files", "kafka", "delta"]


class EventLogsParams(BaseModel):
    """The parameters of `dg scaffold defs tidemark.dagster.EventLogs NAME`."""

    source: str = Field(default="events", description="The name of the source.")
    event_time: str = Field(
        default="at", description="The column with the time at which an event happened."
    )
    key: str | None = Field(default=None, description="A column by which events are grouped.")
    connector: _Connector = Field(
        default="files", description="How events arrive: files, kafka or delta."
    )
    over: Literal["events", "rows", "union", "join", "as_of"] = Field(
        default="events",
        description="What is computed from the events: rows, union, join or as_of; by default, "
        "nothing. All but rows have a second source.",
    )


class WindowedAssetParams(EventLogsParams):
    """The parameters of `dg scaffold defs tidemark.dagster.WindowedAsset NAME`."""

    over: Literal["events", "rows", "union", "join", "as_of", "chain"] = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default="events",
        description="What the windows are over: events, rows, union, join, as_of or chain. All "
        "but events, rows and chain have a second source.",
    )
    window: str = Field(default="1 hour", description="The size of the windows.")
    start_date: str = Field(default="2026-01-01", description="The day of the first partition.")


class EventLogsScaffolder(dg.Scaffolder[EventLogsParams]):
    """Writes the `defs.yaml` of event logs."""

    @classmethod
    def get_scaffold_params(cls) -> type[EventLogsParams]:
        return EventLogsParams

    def scaffold(self, request: dg.ScaffoldRequest[EventLogsParams]) -> None:
        attributes = _describe_sources(request.params)
        derivation = _describe_derivation(request.params)
        if derivation is not None:
            attributes["derived"] = {request.target_path.name: derivation}
        dg.scaffold_component(request, attributes)


class WindowedAssetScaffolder(dg.Scaffolder[WindowedAssetParams]):
    """Writes the `defs.yaml` of a windowed asset that counts events."""

    @classmethod
    def get_scaffold_params(cls) -> type[WindowedAssetParams]:
        return WindowedAssetParams

    def scaffold(self, request: dg.ScaffoldRequest[WindowedAssetParams]) -> None:
        params = request.params
        name = request.target_path.name
        attributes: dict[str, Any] = {"name": name, **_describe_sources(params)}
        derivation = _describe_derivation(params)
        transform: dict[str, Any] = {"source": params.source, **_describe_windows(params)}
        if params.over == "chain":
            derivation = {
                "chain": {"source": params.source, "transform": _describe_windows(params)}
            }
            transform["aggregates"] = {"number": {"sum": "number"}}
        if derivation is not None:
            derived_name = f"{name}_{params.over}"
            attributes["derived"] = {derived_name: derivation}
            transform["source"] = derived_name
        attributes["transform"] = transform
        attributes["partitions_def"] = {"type": "daily", "start_date": params.start_date}
        dg.scaffold_component(request, attributes)


def _describe_sources(params: EventLogsParams) -> dict[str, Any]:
    """Return the attributes `sources` and `connectors`, of one source or of two."""
    names = [params.source]
    if params.over in ("union", "join", "as_of"):
        names.append(_second_source(params))
    columns = {params.event_time: "timestamp"}
    if params.over in ("join", "as_of") or params.key is not None:
        columns[_key(params)] = "string"
    sources = dict[str, Any]()
    connectors = dict[str, Any]()
    for name in names:
        sources[name] = {
            "event_time": params.event_time,
            "columns": dict(columns),
            "watermark": {"bounded_out_of_orderness": "10 minutes"},
        }
        connectors[name] = {params.connector: _describe_connector(params.connector, name)}
    return {"sources": sources, "connectors": connectors}


def _second_source(params: EventLogsParams) -> str:
    return f"more_{params.source}"


def _key(params: EventLogsParams) -> str:
    """Return the key. A join needs one."""
    return params.key or "id"


def _describe_connector(connector: _Connector, source: str) -> dict[str, Any]:
    if connector == "files":
        return {"format": "csv", "options": {"header": True}}
    if connector == "kafka":
        return {"topics": [source], "format": "json"}
    return {"path": f"tables/{source}"}


def _describe_derivation(params: EventLogsParams) -> dict[str, Any] | None:
    """Return the derived source that the parameters ask for; None if there is none."""
    sides = {"left": params.source, "right": _second_source(params), "on": [_key(params)]}
    match params.over:
        case "rows":
            return {"rows": {"source": params.source, "where": f"{params.event_time} IS NOT NULL"}}
        case "union":
            return {"union": {"of": [params.source, _second_source(params)]}}
        case "join":
            return {"join": {**sides, "within": ["-5 minutes", "1 hour"]}}
        case "as_of":
            return {"as_of": sides}
        case _:
            return None


def _describe_windows(params: WindowedAssetParams) -> dict[str, Any]:
    """Return the parts of a transform that counts events."""
    windows = dict[str, Any]()
    if params.key is not None:
        windows["keys"] = [params.key]
    windows["window"] = {"tumbling": {"size": params.window}}
    windows["allowed_lateness"] = params.window
    windows["aggregates"] = {"number": "count"}
    return windows
