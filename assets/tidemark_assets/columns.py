"""The lineage of columns of windows as their definition has it, before anything has run.

It goes by names: a column of the windows comes from those columns of the log that its aggregate
names. What the transform made of them under other names nobody can tell without running it, and so
it has no lineage.
"""

import re
from collections.abc import Iterable, Mapping

import dagster as dg

from tidemark.define.definition import Definition
from tidemark.define.rollup import RollUp
from tidemark.define.window_columns import BOUNDS
from tidemark_assets.names import Names

_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"[A-Za-z_]\w*")


def lineage(transform: Definition, names: Names) -> dg.TableColumnLineage:
    """Of which columns of its log, or of the asset that it rolls up, each column is made."""
    if isinstance(transform, RollUp):
        same = [*BOUNDS, *transform.keys, *transform.aggregates, "events", "late_events"]
        return _lineage(names.key(transform.base.table), {name: [name] for name in same})
    source = transform.source
    named = {
        **{bound: [source.event_time] for bound in BOUNDS},
        **{key: [key] for key in transform.keys},
        **{name: _names(str(value)) for name, value in transform.aggregates.items()},
    }
    # SQL takes a name in any case.
    there = {column.lower(): column for column in source.columns}
    known = {
        name: list(dict.fromkeys(there[c.lower()] for c in of if c.lower() in there))
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
    """The names in a SQL expression, each once; literals of text have none."""
    return list(dict.fromkeys(_NAME.findall(_QUOTED.sub("", expression))))
