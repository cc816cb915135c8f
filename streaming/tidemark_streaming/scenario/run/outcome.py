"""Read the result tables of a scenario's run, in the format of `tidemark test --json`.

The tables have few rows and are on this machine, so they are read without the engine.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from tidemark.base.errors import DataError
from tidemark.base.instants import format_instant, parse_instant
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.snapshot.tables import Tables

Rows = list[dict[str, Any]]
NOTHING: dict[str, Rows] = {"windows": [], "panes": [], "late": []}
"""The result of a transform whose source has no arrivals."""
_WINDOW = ("window_start", "window_end")

_PLACE = [("arrival", "ascending"), ("position", "ascending")]

_FIELDS = {"is_last": "last"}
"""The fields of a result whose names differ from the column's name, by column."""


def read_outcome(folder: str, transform: WindowedTransform) -> dict[str, Rows]:
    """Return the windows, panes and late events of a transform whose tables are in a folder."""
    tables = Tables(folder)
    if tables.open_table(transform.published_table) is None:
        raise DataError(
            f"This process can't read the tables that the engine wrote to '{folder}': a simulation "
            "needs an engine on this machine, or a warehouse that the engine and this process can "
            "both read."
        )
    identity = [*_WINDOW, *transform.keys]
    window_columns = identity + list(transform.aggregates)
    window_columns += ["revision", "timing", "final", "late_events"]
    pane_columns = [*identity, "pane", "timing", "is_last", "retraction"]
    pane_columns += transform.aggregates
    late_columns = list(transform.source.columns)
    late_columns += [*_WINDOW, "watermark", "lateness_seconds"]
    pane_order = [*identity, "pane", "retraction"]
    late_order = [*identity, "arrival", "position"]
    return {
        "windows": _read_rows(tables, transform.published_table, window_columns, identity),
        "panes": _read_rows(tables, transform.panes_table, pane_columns, pane_order),
        "late": _read_rows(tables, transform.late_table, late_columns, late_order),
    }


def read_derived_outcome(
    folder: str, sources: Sequence[DerivedSource]
) -> dict[str, dict[str, Rows]]:
    """Return the results of derived sources whose tables are in a folder.

    Return two parts, each by the name of the derived source. `derived` has its events. `unjoined`
    has the rows of its bases that it omits, because they are too late or have no event time.
    """
    tables = Tables(folder)
    derived = dict[str, Rows]()
    unjoined = dict[str, Rows]()
    for source in sources:
        columns = ["arrival", *source.columns, "watermark"]
        derived[source.name] = _read_rows(
            tables, source.log_table, columns, ["arrival", "position"]
        )
        unjoined[source.name] = _read_unjoined(tables, source)
    return {"derived": derived, "unjoined": unjoined}


def _read_unjoined(tables: Tables, source: DerivedSource) -> Rows:
    letters = tables.read(source.dead_letters_table)
    unjoined = Rows()
    if letters is None:
        return unjoined
    events = {base.name: _read_events(tables, base) for base in source.base_sources}
    for letter in letters.sort_by(_PLACE).to_pylist():
        base, _, base_position = letter["read_from"].partition(" ")
        row = dict(events[base][base_position])
        row["source"] = base
        row["reason"] = letter["reason"].removesuffix(f" in {base}")
        row["arrival"] = letter["arrival"]
        unjoined.append(row)
    return unjoined


def _read_events(tables: Tables, source: Source) -> dict[str, dict[str, Any]]:
    """Return the events of a source, by the text `ARRIVAL#POSITION` that identifies them in the
    column `read_from` of a derived source."""
    stored = tables.read(source.log_table)
    events = dict[str, dict[str, Any]]()
    if stored is None:
        return events
    names = [*source.columns, "watermark"]
    for row in stored.to_pylist():
        values = {name: _to_plain(row[name]) for name in names}
        events[f"{row['arrival']}#{row['position']}"] = values
    return events


def _read_rows(tables: Tables, table: str, names: Sequence[str], order: Sequence[str]) -> Rows:
    stored = tables.read(table)
    if stored is None:
        return []
    rows = stored.to_pylist()
    for name in reversed(order):
        # A retraction comes before the new rows of the same pane.
        rows.sort(key=partial(_sort_key, name), reverse=name == "retraction")
    fields = {name: _FIELDS.get(name, name) for name in names}
    plain_rows = Rows()
    for row in rows:
        plain_rows.append({field: _to_plain(row[name]) for name, field in fields.items()})
    return plain_rows


def _sort_key(name: str, row: dict[str, Any]) -> tuple[bool, Any]:
    return row[name] is not None, row[name]


def _to_plain(value: Any) -> Any:  # noqa: ANN401
    match value:
        case datetime(tzinfo=zone) if zone is not None:
            return format_instant(parse_instant(value))
        case Decimal():
            return f"{value:f}"
        case date():
            return str(value)
        case list():
            return [_to_plain(v) for v in value]
        case dict():
            return {name: _to_plain(v) for name, v in value.items()}
        case _:
            return value
