"""Describe an asset as a data contract of the Open Data Contract Standard (ODCS), version 3.1.

The contract has what a definition states about the published table: columns, keys, quality rules,
and how soon a window is published and final. Nothing is measured.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.base.instants import format_duration
from tidemark.define.contract import quality_rules
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.tidemark_columns import BOUNDS, PUBLISHED
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.window_columns import WINDOW_MEANINGS

ODCS_VERSION = "v3.1.0"

_SECOND = 1_000_000
"""Microseconds in a second."""

_LOGICAL_TYPES = {
    "string": "string",
    "char": "string",
    "varchar": "string",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "boolean": "boolean",
    "tinyint": "integer",
    "smallint": "integer",
    "int": "integer",
    "bigint": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "array": "array",
    "struct": "object",
    "map": "object",
}
"""The standard's logical types, by the name of Spark's type. Others, such as binary, have none."""

_END_OF_NAME = re.compile(r"[(<]")
"""The end of a type's name, as in `decimal(10,2)` and `array<string>`."""

_Node = dict[str, Any]


def describe_contract(
    definition: Definition,
    database: str,
    path: str,
    types: Mapping[str, str | None],
    owners: Sequence[str],
) -> _Node:
    """Return the data contract of an asset, as the content of a YAML file.

    Args:
        database: the database of the published table.
        path: the path or the address of the table's folder.
        types: Spark's type of each column of the published table, in order; None if only a run
            determines it.
        owners: those who answer for the table: email addresses, or names of teams.
    """
    table = str(definition.published_table)
    contract: _Node = {
        "apiVersion": ODCS_VERSION,
        "kind": "DataContract",
        "id": f"{database}.{table}",
        "name": table,
        # Another definition may publish other values, so it is another version of the contract.
        "version": compute_fingerprint(definition),
        "status": "active",
        "description": {"purpose": " ".join(definition.description.split())},
        "servers": [_describe_server(database, path)],
        "schema": [_describe_table(definition, database, types)],
        "slaProperties": _service_levels(definition),
        "customProperties": _custom_properties(definition),
    }
    if owners:
        members = [{"username": owner, "role": "owner"} for owner in owners]
        contract["team"] = {"members": members}
    return contract


def _describe_server(database: str, path: str) -> _Node:
    server: _Node = {"server": database, "format": "delta"}
    scheme, separator, _ = path.partition("://")
    if not separator:
        return server | {"type": "local", "path": path}
    if scheme in ("s3", "s3a"):
        return server | {"type": "s3", "location": f"s3{path.removeprefix(scheme)}"}
    if scheme in ("abfs", "abfss"):
        return server | {"type": "azure", "location": path}
    return server | {"type": "custom", "location": path}


def _describe_table(
    definition: Definition, database: str, types: Mapping[str, str | None]
) -> _Node:
    table_rules = [quality_rules.unique_rows_rule(definition.by_window)]
    column_rules = dict[str, list[quality_rules.QualityRule]]()
    for expectation in definition.all_expectations:
        rule = quality_rules.describe_rule(expectation)
        column = quality_rules.column_of(expectation)
        if column is None:
            table_rules.append(rule)
        else:
            column_rules.setdefault(column, []).append(rule)
    columns = list[_Node]()
    for name, kind in types.items():
        column_node = _describe_column(definition, name, kind)
        if name in column_rules:
            column_node["quality"] = column_rules[name]
        columns.append(column_node)
    keys = "".join(f" and {key}" for key in definition.keys)
    return {
        "name": str(definition.published_table),
        "logicalType": "object",
        "physicalName": f"{database}.{definition.published_table}",
        "physicalType": "table",
        "dataGranularityDescription": f"One row per window{keys}.",
        "properties": columns,
        "quality": table_rules,
    }


def _describe_column(definition: Definition, name: str, kind: str | None) -> _Node:
    column: _Node = {"name": name}
    if kind is not None:
        logical_type = _LOGICAL_TYPES.get(_END_OF_NAME.split(kind)[0])
        if logical_type is not None:
            column["logicalType"] = logical_type
        column["physicalType"] = kind
    if name in definition.by_window:
        column["primaryKey"] = True
        column["primaryKeyPosition"] = definition.by_window.index(name) + 1
    if name in definition.keys:
        column["description"] = "Key of the window"
    elif name in definition.aggregates:
        column["description"] = str(definition.aggregates[name])
        column["transformLogic"] = str(definition.aggregates[name])
        base_table = definition.rolled_up_name or str(definition.source.log_table)
        column["transformSourceObjects"] = [base_table]
    elif name in WINDOW_MEANINGS:
        column["description"] = WINDOW_MEANINGS[name]
    # `quality` is null if an asset has no expectations. Keys and aggregates may be null.
    if name in BOUNDS or (name in PUBLISHED and name != "quality"):
        column["required"] = True
    return column


def _service_levels(definition: Definition) -> list[_Node]:
    """Return how often windows end, how soon they are published, and when they are final.

    These durations are in event time. A watermark whose delay the definition does not state, such
    as a punctuated one, has no latency.
    """
    element = f"{definition.published_table}.window_end"
    levels = list[_Node]()

    def add_level(name: str, micros: int, description: str) -> None:
        seconds = micros / _SECOND
        levels.append(
            {
                "property": name,
                "value": int(seconds) if seconds.is_integer() else seconds,
                "unit": "s",
                "element": element,
                "description": description,
            }
        )

    watermark = definition.source.watermark
    latency = watermark.bound if isinstance(watermark, BoundedOutOfOrderness) else None
    interval = definition.window.closing_every
    if interval is not None:
        add_level("frequency", interval, "Windows end at this distance.")
    if latency is not None:
        add_level(
            "latency",
            latency,
            "A window is published by the run that reads the first event that is later than its "
            "end by this time.",
        )
    add_level(
        "allowedLateness",
        definition.allowed_lateness,
        "A published window can still change until the watermark is behind its end by this time; "
        "then the column final is true.",
    )
    return levels


def _custom_properties(definition: Definition) -> list[_Node]:
    source = definition.source
    values: dict[str, object] = {
        "eventTime": source.event_time,
        "source": source.name,
        "sourceTable": str(source.log_table),
        "watermark": str(source.watermark),
        "window": str(definition.window),
        "keys": list(definition.keys),
        "allowedLateness": format_duration(definition.allowed_lateness),
        "trigger": str(definition.trigger),
    }
    if definition.rolled_up_name is not None:
        values["rollUpOf"] = definition.rolled_up_name
    if definition.accumulation is not None:
        values["accumulation"] = definition.accumulation
    if definition.sink is not None:
        values["sink"] = str(definition.sink)
    properties = list[_Node]()
    for name, value in values.items():
        properties.append({"property": name, "value": value})
    return properties
