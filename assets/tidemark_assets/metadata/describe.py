"""Describe definitions as metadata of assets, before the assets have run."""

import inspect
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from tidemark.base.instants import format_duration as span
from tidemark.define import window_columns
from tidemark.define.definition import COMPLETE, Definition
from tidemark.define.rollup import RollUp, base_transform
from tidemark.define.row_function import is_generated
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS, ARRIVAL_MEANINGS
from tidemark.define.window_columns import BOUNDS, WINDOW_MEANINGS
from tidemark_assets.base.names import Names

_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"[A-Za-z_]\w*")

Metadata = dict[str, Any]

UNKNOWN_TYPE = "as computed"
"""The type of a column that no definition determines."""

MEANINGS = {
    **ARRIVAL_MEANINGS,
    "watermark_before": "Watermark before the arrival; null is -infinity",
    "watermark_after": "Watermark after the arrival",
    **WINDOW_MEANINGS,
    "failed_expectations": (
        "The expectations that the row failed, each with its level, observed and expected value"
    ),
    "quarantine_status": "quarantined, or discarded manually",
    "quarantine_run": "The run that quarantined the row",
    "lateness_seconds": ("How far the event was behind the watermark, in seconds"),
    "reason": (
        "too_late, no_event_time, invalid_timestamp, future_timestamp or window_out_of_range"
    ),
    "bytes": "The bytes as received; null if they may not be stored",
    "dead_letters": "Number of rows of the arrival that could not be decoded",
    "future_timestamps": "Number of events dated later than the source accepts",
    "unreadable_marks": (
        "Number of events for which the expression of a punctuated watermark failed"
    ),
    "silent_since": (
        "For a heartbeat, the time since which the ingest has found no data; null for others"
    ),
    "undeclared": "Fields that the source does not declare, as far as they were sampled",
    "schema_version": (
        "Schema version of the event log at the arrival; it increases when the source gains columns"
    ),
    "lookups": "Versions of the source's lookup tables at the arrival, by name, as JSON",
    "lost_events": "Number of events that were too late for the window",
    "pane": "Number of the firing of the window and keys: 0, 1, 2, …",
    "is_last": "Whether no later firing is possible",
    "retraction": "Whether the row retracts the one before it",
}
"""Descriptions of the columns that Tidemark adds."""


def log(source: Source) -> Metadata:
    """Return the metadata of a source's log."""
    columns = {**source.columns, **ARRIVAL_COLUMNS}
    meanings = {source.event_time: "Event time", **MEANINGS}
    return {
        "watermark": str(source.watermark),
        "event time": source.event_time,
        "dagster/column_schema": schema(columns, meanings),
    }


def windows(transform: Definition, names: Names) -> Metadata:
    """Return the metadata of a transform's published table: the definition in readable form."""
    rows = [f"| `{name}` | {value} |" for name, value in transform.aggregates.items()]
    return {
        "window": str(transform.window),
        "keys": ", ".join(transform.keys) or "none",
        "allowed lateness": span(transform.allowed_lateness),
        "fires": str(transform.trigger),
        "watermark": str(transform.source.watermark),
        **({"accumulation": mode} if (mode := transform.accumulation) is not None else {}),
        **({"publishes to": str(sink)} if (sink := transform.sink) is not None else {}),
        **transform.further_details,
        "aggregates": dg.MetadataValue.md(
            "\n".join(["| column | aggregate |", "| --- | --- |", *rows])
        ),
        "dagster/column_schema": columns_of(transform, window_columns.published_columns(transform)),
        "dagster/column_lineage": lineage(transform, names),
        **_code(transform),
    }


def columns_of(transform: Definition, columns: Mapping[str, str | None]) -> dg.TableSchema:
    """Return the columns of a transform's table. A type that only a run determines is unknown."""
    kinds = {name: kind or UNKNOWN_TYPE for name, kind in columns.items()}
    return schema(kinds, meanings(transform))


def _code(transform: Definition) -> Metadata:
    """Return the location of a transform's code, to which Dagster's pages link.

    A transform in YAML or SQL has no code. Dagster links to the YAML file itself.
    """
    function = inspect.unwrap(base_transform(transform).function)
    if is_generated(function):
        return {}
    code = function.__code__
    with warnings.catch_warnings():
        # Dagster warns that these classes are beta, about which a user of Tidemark can do nothing.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(
            file_path=code.co_filename, line_number=code.co_firstlineno, label=function.__name__
        )
        return {
            "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])
        }


def meanings(transform: Definition) -> dict[str, str]:
    """Return descriptions of the columns of a transform's tables."""
    values = {name: str(value) for name, value in transform.aggregates.items()}
    complete = {
        f"{name}{COMPLETE}": f"{value}, including too-late events" for name, value in values.items()
    }
    return {**MEANINGS, **values, **complete}


def schema(columns: Mapping[str, str], meanings: Mapping[str, str]) -> dg.TableSchema:
    """Return a table's columns for Dagster: types in lower case, and known descriptions."""
    return dg.TableSchema(
        [dg.TableColumn(n, t.lower(), description=meanings.get(n)) for n, t in columns.items()]
    )


def lineage(transform: Definition, names: Names) -> dg.TableColumnLineage:
    """Return the columns of the log, or of a roll-up's base, from which each column is computed.

    The column of an aggregate is computed from the columns that the aggregate names. Columns that
    the transform creates are left out, because their origin is only known when the transform runs.
    """
    if isinstance(transform, RollUp):
        same = [*BOUNDS, *transform.keys, *transform.aggregates, "events", "late_events"]
        return _lineage(names.key(transform.base.published_table), {name: [name] for name in same})
    source = transform.source
    named = {
        **{bound: [source.event_time] for bound in BOUNDS},
        **{key: [key] for key in transform.keys},
        **{name: _names_in(str(value)) for name, value in transform.aggregates.items()},
    }
    # SQL names are case-insensitive.
    declared = {column.lower(): column for column in source.columns}
    columns_used = {
        name: list(dict.fromkeys(declared[c.lower()] for c in used if c.lower() in declared))
        for name, used in named.items()
    }
    return _lineage(names.key(source.log_table), columns_used)


def _lineage(key: dg.AssetKey, made_of: Mapping[str, Iterable[str]]) -> dg.TableColumnLineage:
    deps = {
        name: [dg.TableColumnDep(asset_key=key, column_name=column) for column in dependencies]
        for name, dependencies in made_of.items()
    }
    return dg.TableColumnLineage(
        {name: dependencies for name, dependencies in deps.items() if dependencies}
    )


def _names_in(expression: str) -> list[str]:
    """Return the names in a SQL expression, each once; string literals are ignored."""
    return list(dict.fromkeys(_NAME.findall(_QUOTED.sub("", expression))))
