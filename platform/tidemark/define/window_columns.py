"""List the columns of an asset's tables from its definition, before anything has run.

A type is known if the definition determines it: for a column of the source, for a column that
Tidemark adds, and for an aggregate whose result always has the same type, such as a count. All
other types depend on the transform's code; only the existing table shows them.
"""

from tidemark.define.definition import COMPLETE, Definition
from tidemark.define.tidemark_columns import (
    ARRIVAL_COLUMNS,
    BOUNDS,
    FIRED,
    LATE_COLUMNS,
    LOST,
    PUBLISHED,
    QUARANTINE_COLUMNS,
)

WINDOW_MEANINGS = {
    "window_start": "Start of the window, inclusive",
    "window_end": "End of the window, exclusive",
    "events": "Events counted in the window",
    "late_events": "Events of the window that arrived after the watermark had passed its end",
    "revision": "0 at the first firing, plus one at each later firing",
    "timing": "Type of the newest firing: EARLY, ON_TIME or LATE",
    "final": "Whether no late event can change the window; a session can still grow for one gap",
    "last_arrival": "Newest arrival with an event that is counted in the window",
    "as_of": "Newest arrival that was read by the run that wrote the row",
    "commit_number": "Number of the run's commit",
    "quality": (
        "passed, warned (it failed a warning) or released (published by a person's decision)"
    ),
}
"""Descriptions of the columns that Tidemark adds to a window's keys and aggregates."""


def published_columns(definition: Definition) -> dict[str, str | None]:
    """Return the columns of the published table, with their types; None for an unknown type."""
    return {**BOUNDS, **_key_columns(definition), **_aggregate_columns(definition), **PUBLISHED}


def quarantined_columns(definition: Definition) -> dict[str, str | None]:
    columns = published_columns(definition)
    del columns["quality"]
    return {**columns, **QUARANTINE_COLUMNS}


def pane_columns(definition: Definition) -> dict[str, str | None]:
    return {
        **BOUNDS,
        **_key_columns(definition),
        **FIRED,
        **_aggregate_columns(definition),
        "commit_number": "bigint",
    }


def late_columns(definition: Definition) -> dict[str, str | None]:
    """Return the columns of the late table, without those that the transform's function adds."""
    event = {**definition.source.columns, **ARRIVAL_COLUMNS}
    plain = {name: kind.lower() for name, kind in event.items()}
    return {**plain, **_key_columns(definition), **LATE_COLUMNS}


def late_loss_columns(definition: Definition) -> dict[str, str | None]:
    values = _aggregate_columns(definition)
    complete = {f"{name}{COMPLETE}": kind for name, kind in values.items()}
    counted = {**LOST, **complete, **values, "commit_number": "bigint"}
    return {**BOUNDS, **_key_columns(definition), **counted}


def _key_columns(definition: Definition) -> dict[str, str | None]:
    columns = definition.source.columns
    types = dict[str, str | None]()
    for key in definition.keys:
        types[key] = None
        if key in columns:
            types[key] = columns[key].lower()
    return types


def _aggregate_columns(definition: Definition) -> dict[str, str | None]:
    # The function may change the types of the source's columns. An aggregate's type is therefore
    # not derived from them.
    return {name: value.result_type({}) for name, value in definition.aggregates.items()}
