"""Derive the lineage of windows' columns from their definition, before anything has run.

Lineage is derived from names: a column of the windows comes from the log's columns that its
aggregate names. A column that the transform creates under another name has no lineage, because that
is only known when the transform runs.
"""

import re
from collections.abc import Iterable, Mapping

import dagster as dg

from tidemark.define.definition import Definition
from tidemark.define.rollup import RollUp
from tidemark.define.window_columns import BOUNDS
from tidemark_assets.base.names import Names

_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"[A-Za-z_]\w*")


def lineage(transform: Definition, names: Names) -> dg.TableColumnLineage:
    """Return the columns of the log, or of a roll-up's base, from which each column is computed."""
    if isinstance(transform, RollUp):
        same = [*BOUNDS, *transform.keys, *transform.aggregates, "events", "late_events"]
        return _lineage(names.key(transform.base.table), {name: [name] for name in same})
    source = transform.source
    named = {
        **{bound: [source.event_time] for bound in BOUNDS},
        **{key: [key] for key in transform.keys},
        **{name: _names(str(value)) for name, value in transform.aggregates.items()},
    }
    # SQL names are case-insensitive.
    declared = {column.lower(): column for column in source.columns}
    known = {
        name: list(dict.fromkeys(declared[c.lower()] for c in of if c.lower() in declared))
        for name, of in named.items()
    }
    return _lineage(names.key(source.log_table), known)


def _lineage(key: dg.AssetKey, made_of: Mapping[str, Iterable[str]]) -> dg.TableColumnLineage:
    deps = {
        name: [dg.TableColumnDep(asset_key=key, column_name=column) for column in of]
        for name, of in made_of.items()
    }
    return dg.TableColumnLineage({name: of for name, of in deps.items() if of})


def _names(expression: str) -> list[str]:
    """Return the names in a SQL expression, each once; string literals are ignored."""
    return list(dict.fromkeys(_NAME.findall(_QUOTED.sub("", expression))))
