"""Describe definitions as metadata of assets, before they have run."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

from tidemark.base.instants import describe as span
from tidemark.define import window_columns
from tidemark.define.definition import COMPLETE, Definition
from tidemark.define.rollup import counting
from tidemark.define.source import ARRIVAL_COLUMNS, Source
from tidemark.define.window_columns import WINDOW_MEANINGS
from tidemark_assets import columns
from tidemark_assets.names import Names

Metadata = dict[str, Any]

UNTOLD = "as computed"
"""The type of a column that no definition determines."""

MEANINGS = {
    "arrival": "Number of the arrival that brought it: 0, 1, 2, … without gaps",
    "position": "Its place in the arrival",
    "arrived_at": "Processing time of the arrival",
    "watermark": "The watermark just before the arrival, by which it is judged; null is -infinity",
    "read_from": "Where it was read: file and row",
    "correlation_id": "Its identity, the same whenever it is read",
    "unparsed": "Null; of a row of before there were dead letters, the text that did not fit",
    "watermark_before": "The watermark before the arrival; null is -infinity",
    "watermark_after": "The watermark after the arrival",
    **WINDOW_MEANINGS,
    "failed": "What the row failed: the expectation, its level, what was observed and expected",
    "status": "held, or discarded by a person",
    "run": "The run that withheld it",
    "lag_seconds": "How far the event was behind the watermark",
    "reason": "too_late, no_event_time, impossible_time, dated_ahead, window_out_of_range or "
    "unparsable",
    "bytes": "As they came; null where they may not be kept",
    "dead_letters": "What it brought beside its events that could not be decoded",
    "dated_ahead": "Events that are dated later than the source accepts",
    "unreadable_marks": "Events on which the expression of a punctuated watermark failed",
    "undeclared": "Fields that it had beside the source's columns, as far as was looked",
    "schema_version": "That of the log when it came: one more each time the source gained columns",
    "references": "The versions that the source's references had, by name, as JSON",
    "lost": "Events that came too late for the window",
    "pane": "Number of the firing: 0, 1, 2, … of each window and keys",
    "last": "Whether no firing can follow",
    "retraction": "Whether the row takes back the one before",
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
        **({"publishes to": str(to)} if (to := transform.publishes_to) is not None else {}),
        **transform.remarks,
        "aggregates": dg.MetadataValue.md("\n".join(["| column | is |", "| --- | --- |", *rows])),
        "dagster/column_schema": columns_of(transform, window_columns.published(transform)),
        "dagster/column_lineage": columns.lineage(transform, names),
        **_code(transform),
    }


def columns_of(transform: Definition, columns: Mapping[str, str | None]) -> dg.TableSchema:
    """Return the columns of a transform's table, some of whose types only a run determines."""
    kinds = {name: kind or UNTOLD for name, kind in columns.items()}
    return schema(kinds, meanings(transform))


def _code(transform: Definition) -> Metadata:
    """Return the location of a transform's code, to which Dagster's pages link."""
    function = inspect.unwrap(counting(transform).function)
    code = function.__code__
    with warnings.catch_warnings():
        # Dagster marks these classes as beta, which a user of Tidemark can't change.
        warnings.simplefilter("ignore", dg.BetaWarning)
        place = dg.LocalFileCodeReference(
            file_path=code.co_filename, line_number=code.co_firstlineno, label=function.__name__
        )
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[place])}


def meanings(transform: Definition) -> dict[str, str]:
    """Return descriptions of the columns of a transform's tables."""
    values = {name: str(value) for name, value in transform.aggregates.items()}
    complete = {f"{name}{COMPLETE}": f"{value}, with late events" for name, value in values.items()}
    return {**MEANINGS, **values, **complete}


def schema(columns: Mapping[str, str], meanings: Mapping[str, str]) -> dg.TableSchema:
    """Return a table's columns for Dagster: types in lower case, and known descriptions."""
    return dg.TableSchema(
        [dg.TableColumn(n, t.lower(), description=meanings.get(n)) for n, t in columns.items()]
    )
