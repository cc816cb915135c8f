"""A case: a small graph, and operations on it, as plain data that can be stored as YAML.

Times are whole seconds after `EPOCH`. An operation is a mapping with `do`, its name, and its
arguments. Three arguments are common to all: `then`, the nodes that make progress afterwards;
`kill`, the fail point at which the operation or this progress dies; and `engine`, the number of the
query during which the engine is killed.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

Part = dict[str, Any]

EPOCH = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
SECOND = 1_000_000
EPOCH_MICROS = int(EPOCH.timestamp()) * SECOND

DERIVED = ("union", "join", "as_of", "row_asset", "chain")
"""The kinds of nodes that are event logs. `asset` and `rollup` are windows, `sink` is a topic with
the windows of an asset, and `mart` is a dbt model over windows."""


def instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def bases_of(node: Part) -> list[str]:
    """Return the names of the sources and nodes that a node reads."""
    kind = node["kind"]
    if kind == "union":
        return list(node["of"])
    if kind in ("join", "as_of"):
        return [node["left"], node["right"]]
    return [node["of"] if kind in ("chain", "rollup", "sink", "mart") else node["source"]]


def below(nodes: Part, names: Iterable[str]) -> list[str]:
    """Return the nodes that read one of the named ones, directly or not, in order."""
    reached = set(names)
    dependents = list[str]()
    for name, node in nodes.items():
        if reached.intersection(bases_of(node)):
            reached.add(name)
            dependents.append(name)
    return dependents


def to_text(case: Part) -> str:
    return yaml.safe_dump(case, sort_keys=False, default_flow_style=None, width=100)


def from_file(path: Path) -> Part:
    return yaml.safe_load(path.read_text())


def without_operations(case: Part, numbers: Sequence[int]) -> Part:
    """Return a case that lacks some operations."""
    operations = [each for n, each in enumerate(case["operations"]) if n not in numbers]
    return {**deepcopy(case), "operations": deepcopy(operations)}


def without_node(case: Part, name: str) -> Part | None:
    """Return a case that lacks a node or a source that no other node reads, or None."""
    if below(case["nodes"], [name]):
        return None
    smaller = deepcopy(case)
    smaller["nodes"].pop(name, None)
    smaller["sources"].pop(name, None)
    if not smaller["sources"]:
        return None
    kept = list[Part]()
    for operation in smaller["operations"]:
        if name in (operation.get("node"), operation.get("source")):
            continue
        operation["then"] = [each for each in operation["then"] if each != name]
        if operation.get("first", {}).get("source") == name:
            del operation["first"]
        kept.append(operation)
    smaller["operations"] = kept
    return smaller
