"""The columns of windows as their definition has them, before anything has run.

A type is told where the definition settles it: that of a column of the source, of what Tidemark
adds, of a count. The transform's own code decides the others, which a materialization tells.
Lineage goes by names: a column of the windows comes from those columns of the log that its
aggregate names. What the transform made of them under other names nobody can tell without running
it, and so it has no lineage.
"""

import re
from collections.abc import Iterable, Mapping

import dagster as dg

from tidemark.define.definition import Definition
from tidemark.define.rollup import RollUp

UNTOLD = "as computed"
"""The type of a column that no definition tells."""

_BOUNDS = {"window_start": "timestamp", "window_end": "timestamp"}
_COUNTED = {
    "events": "bigint",
    "late_events": "bigint",
    "revision": "int",
    "timing": "string",
    "final": "boolean",
    "last_arrival": "bigint",
    "as_of": "bigint",
    "seq": "bigint",
    "quality": "string",
}
_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"[A-Za-z_]\w*")
_COUNTS = re.compile(r"count(_distinct)?\(")


def published(transform: Definition) -> dict[str, str]:
    """The columns of the published windows, in their order, with their types."""
    columns = transform.source.columns
    keys = {key: columns.get(key, UNTOLD).lower() for key in transform.keys}
    values = {name: _type(str(value)) for name, value in transform.aggregates.items()}
    return {**_BOUNDS, **keys, **values, **_COUNTED}


def lineage(transform: Definition) -> dg.TableColumnLineage:
    """Of which columns of its log, or of the asset that it rolls up, each column is made."""
    if isinstance(transform, RollUp):
        same = [*_BOUNDS, *transform.keys, *transform.aggregates, "events", "late_events"]
        return _lineage(transform.base.table, {name: [name] for name in same})
    source = transform.source
    named = {
        **{bound: [source.event_time] for bound in _BOUNDS},
        **{key: [key] for key in transform.keys},
        **{name: _names(str(value)) for name, value in transform.aggregates.items()},
    }
    known = {n: [c for c in of if c in source.columns] for n, of in named.items()}
    return _lineage(source.log_table, known)


def _lineage(table: str, made_of: Mapping[str, Iterable[str]]) -> dg.TableColumnLineage:
    key = dg.AssetKey(table)
    deps = {
        name: [dg.TableColumnDep(asset_key=key, column_name=column) for column in of]
        for name, of in made_of.items()
    }
    return dg.TableColumnLineage({name: of for name, of in deps.items() if of})


def _names(expression: str) -> list[str]:
    """The names in a SQL expression, each once; literals of text have none."""
    return list(dict.fromkeys(_NAME.findall(_QUOTED.sub("", expression))))


def _type(aggregate: str) -> str:
    return "bigint" if _COUNTS.match(aggregate) else UNTOLD
