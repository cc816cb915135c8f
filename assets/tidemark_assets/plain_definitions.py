"""Refuse definitions in a project's folder `defs/` that Dagster would skip without a message.

Dagster takes only objects of its own from a module, and skips all others: a `tm.windowed_asset`
that is not passed to `dagster_asset` would be missing in its graph.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import dagster as dg
from dagster_shared.check import CheckError

from tidemark.base.errors import DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark_streaming.connector import Ingestion

PlainDefinition = Definition | DerivedSource | Ingestion
"""The definitions that `dagster_asset` takes."""

_loaded_definitions = WeakValueDictionary[int, PlainDefinition]()
"""The definitions that are Dagster assets, by their id. Equality would compare functions."""


def register_definition(definition: PlainDefinition) -> None:
    """Record that a definition has become a Dagster asset."""
    _loaded_definitions[id(definition)] = definition
    if isinstance(definition, Ingestion) and isinstance(definition.source, DerivedSource):
        register_definition(definition.source)


def refuse_plain_definitions() -> None:
    """Refuse definitions in modules of a project's folder `defs/` that are not Dagster assets.

    Raises:
        DefinitionError: there are such definitions. The message has their file and names.
    """
    for module in list(sys.modules.values()):
        calls = list(_list_missing_calls(module))
        if calls and _is_in_defs_folder(module):
            raise DefinitionError(
                f"{module.__file__}: Dagster skips a definition of Tidemark that is not a Dagster "
                f"asset. Write {', '.join(calls)} with the function of tidemark.dagster, or move "
                "the definition to a module outside of the folder of definitions."
            )


def _list_missing_calls(module: ModuleType) -> Iterator[str]:
    """Yield what to write for each variable of a module that Dagster skips."""
    if getattr(module, "__file__", None) is None:
        return
    variables: dict[str, Any] = dict(vars(module))
    for name, value in variables.items():
        # Dagster looks into lists, too.
        members: list[Any] = value if isinstance(value, list) else [value]
        for member in members:
            if not isinstance(member, PlainDefinition) or id(member) in _loaded_definitions:
                continue
            arguments = name
            if isinstance(member, Definition):
                arguments += ", partitions_def=…"
            yield f"dagster_asset({arguments})"


def _is_in_defs_folder(module: ModuleType) -> bool:
    """Return whether Dagster loads a module by itself, from the folder of its project."""
    file = Path(str(module.__file__))
    if not file.exists():
        return False
    try:
        tree = dg.ComponentTree.for_project(file)
    except (CheckError, ImportError, dg.DagsterError):
        # No project of Dagster's has this file.
        return False
    return f"{module.__name__}.".startswith(f"{tree.defs_module_name}.")
