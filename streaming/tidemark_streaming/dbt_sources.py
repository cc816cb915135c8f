"""Write the sources of a dbt project from the definitions: Tidemark's tables with their columns.

The definition determines names, types, and the description of an asset. Additions by a person stay:
a better description of a column, the type of a column that no definition has, tests, and the
expected freshness of a table. Comments do not stay. A description is a person's unless a current or
an earlier definition can have written it (`dbt_descriptions`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import yaml

from tidemark.base.errors import DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.window_columns import BOUNDS, WINDOW_MEANINGS, published_columns
from tidemark_streaming.dbt_descriptions import functions, told

PLACE = "models/sources.yml"
"""The file in the project."""

WINDOWS, KEPT = "windows", "kept"
"""The dbt source of the published tables, and that of the tables that accompany them."""

_Node = dict[str, Any]

_HEAD = (
    "# Written by `tidemark dbt-sources`: run it again after a definition has changed.\n"
    "# It keeps descriptions, column types, tests and configurations that you add here.\n"
)
_SCHEMA = "{{ env_var('TIDEMARK_DATABASE') }}"
_ABOUT = {
    WINDOWS: (
        "Windows that Tidemark publishes: one row per window and keys, updated when late events "
        "fire the window again."
    ),
    KEPT: (
        "Tables that Tidemark keeps in addition to the published windows. Such a table exists once "
        "it has a first row."
    ),
}
_BESIDE = {
    "late": (
        (
            "Events that are too late for their window or have no event time, each with the window "
            "that it missed."
        ),
        {"reason": ("string", "Why the event is not counted")},
    ),
    "late_loss": (
        "Windows that lack too-late events.",
        {"lost": ("bigint", "Events that came too late for the window")},
    ),
    "quarantine": (
        "Windows in quarantine, because they failed an expectation.",
        {"status": ("string", "held or discarded")},
    ),
}
_KEY = "Key of the window"
_SENTENCES = {
    *(_KEY, *WINDOW_MEANINGS.values()),
    *(about for _, columns in _BESIDE.values() for _, about in columns.values()),
}
"""Descriptions that definitions write for columns that are not aggregates."""


class _Row(dict[str, Any]):
    """A mapping that is written on one line."""


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a text of several lines as a block, as a person writes SQL."""
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Plain.add_representer(str, _text)
_Plain.add_representer(
    _Row, lambda dumper, row: dumper.represent_mapping("tag:yaml.org,2002:map", row, True)
)


def chosen(text: str) -> list[str]:
    """Return the names of the assets whose windows a project's file has.

    Raises:
        DefinitionError: the text is not a file of dbt sources.
    """
    return [str(table["name"]) for table in _named(_source(_read(text), WINDOWS), "tables")]


def written(transforms: Iterable[Definition], text: str = "") -> str:
    """Return the text of the file for these assets.

    Args:
        text: the existing text of the file.

    Raises:
        DefinitionError: the existing text is not a file of dbt sources.
    """
    there, assets = _read(text), list(transforms)
    calls = functions(assets)
    windows = [
        # The source of its events, which determines its freshness.
        (str(t.table), " ".join(t.description.split()), _columns(t), {"events": t.source.name})
        for t in assets
    ]
    beside = [
        # The asset on whose page Dagster shows the table.
        (f"{t.table}_{kind}", about, _typed(columns), {"asset": str(t.table)})
        for kind, (about, columns) in _BESIDE.items()
        for t in assets
        if kind == "quarantine" or t.late_tables
    ]
    made = [
        _written(WINDOWS, windows, {"event_time": "window_start"}, _source(there, WINDOWS), calls),
        _written(KEPT, beside, {"meta": {"optional": True}}, _source(there, KEPT), calls),
    ]
    others = [s for s in _named(there, "sources") if s["name"] not in (WINDOWS, KEPT)]
    whole = {"version": 2, **there, "sources": [*made, *others]}
    return _HEAD + yaml.dump(
        whole, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100_000
    )


def _read(text: str) -> _Node:
    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise DefinitionError(
            f"{PLACE} is not valid YAML: {' '.join(str(error).split())}."
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("sources") or [], list):
        raise DefinitionError(
            f"{PLACE} has no list 'sources': delete the file, and run `tidemark dbt-sources` to "
            "write it again."
        )
    return found


def _source(file: _Node, name: str) -> _Node:
    return next((s for s in _named(file, "sources") if s["name"] == name), {})


def _named(owner: _Node, key: str) -> list[_Node]:
    """Return the named mappings under a key of the file; none if the key is missing or empty.

    Raises:
        DefinitionError: the value is something else.
    """
    found: object = owner.get(key) or []
    if isinstance(found, list) and all(isinstance(n, dict) and "name" in n for n in found):
        return found
    whose = f" of '{owner['name']}'" if "name" in owner else ""
    raise DefinitionError(
        f"{PLACE}: '{key}'{whose} must be a list of mappings, each with a name. Correct it, or "
        "delete the file and run `tidemark dbt-sources` to write it again."
    )


def _written(
    name: str,
    tables: Iterable[tuple[str, str, Mapping[str, _Node], Mapping[str, str]]],
    config: _Node,
    there: _Node,
    calls: Collection[str],
) -> _Node:
    known = {str(table["name"]): table for table in _named(there, "tables")}
    return {
        "name": name,
        "description": _ABOUT[name],
        "schema": _SCHEMA,
        **{k: v for k, v in there.items() if k not in ("description", "schema", "tables")},
        "config": there.get("config", config),
        "tables": [_table(*table, known.get(table[0], {}), calls) for table in tables],
    }


def _table(
    name: str,
    about: str,
    columns: Mapping[str, _Node],
    meta: Mapping[str, str],
    there: _Node,
    calls: Collection[str],
) -> _Node:
    written = {str(column["name"]): column for column in _named(there, "columns")}
    config = there.get("config") or {}
    config = {**config, "meta": {**(config.get("meta") or {}), **meta}}
    return {
        "name": name,
        "description": about,
        "config": _Row(config),
        **{k: v for k, v in there.items() if k not in ("name", "description", "config", "columns")},
        "columns": [
            _column(column, own, written.get(column, {}), calls) for column, own in columns.items()
        ],
    }


def _column(name: str, own: _Node, there: _Node, calls: Collection[str]) -> _Node:
    # The definition determines a type; a person's description takes precedence.
    kind = own.get("data_type") or there.get("data_type")
    said = str(there.get("description") or "")
    theirs = said and not told(said, _SENTENCES, calls)
    rest = {k: v for k, v in there.items() if k not in ("name", "data_type", "description")}
    return _Row(
        {
            "name": name,
            **({"data_type": kind} if kind else {}),
            "description": said if theirs else own["description"],
            **rest,
        }
    )


def _columns(transform: Definition) -> dict[str, _Node]:
    keys = dict.fromkeys(transform.keys, _KEY)
    values = {name: str(value) for name, value in transform.aggregates.items()}
    meanings = {**WINDOW_MEANINGS, **keys, **values}
    types = published_columns(transform)
    return {n: {"data_type": kind, "description": meanings[n]} for n, kind in types.items()}


def _typed(own: Mapping[str, tuple[str, str]]) -> dict[str, _Node]:
    bounds = {name: (kind, WINDOW_MEANINGS[name]) for name, kind in BOUNDS.items()}
    columns = {**bounds, **own}
    return {n: {"data_type": kind, "description": about} for n, (kind, about) in columns.items()}
