"""`tidemark show`: show an asset's published windows or its late events, without the engine."""

import csv
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import NONE, err, format_time, out
from tidemark_streaming.cli.context import Asset, From, Home, To, parse_range
from tidemark_streaming.cli.inspection.quarantine import Keys, parse_keys
from tidemark_streaming.cli.output import as_json, print_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from tidemark.define.definition import Definition
    from tidemark.store.key_choice import KeyChoice


def command(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows.")] = 20,
    final: Annotated[bool, typer.Option("--final", help="Only final windows.")] = False,
    late: Annotated[
        bool, typer.Option("--late", help="Show too-late events, the newest first.")
    ] = False,
    form: Annotated[
        Literal["table", "json", "csv"],
        typer.Option("--format", help="A table for people, or all columns for scripts."),
    ] = "table",
) -> None:
    """Show the windows that an asset has published, the newest first.

    Example: `tidemark show orders_hourly --from 2026-01-01 --key city=york`
    """
    from tidemark.store.key_choice import key_condition
    from tidemark.store.rows import to_display
    from tidemark_streaming.snapshot.tables import Tables

    if late and final:
        raise DefinitionError(
            "Use either --final, for windows, or --late, for events, but not both."
        )
    span, wanted, home = parse_range(begin, end), parse_keys(key), Home()
    transform = home.asset(asset)
    table = _late_table(transform) if late else transform.table
    tables = Tables.of(home.settings)
    existing = list(tables.types(table))
    if not existing:
        err().print(f"'{asset}' has no rows yet: `tidemark run {asset}` computes them.")
    _check(transform, wanted, existing)
    with_keys = key_condition(wanted, tables.types(table), asset) if existing else None
    chosen = _condition(*span, with_keys, final=final)
    by, then = ("arrival", ["position"]) if late else ("window_start", [*transform.keys])
    rows = tables.read_newest(table, by, chosen, limit, then) if existing else None
    if form == "table":
        if rows is not None:
            _draw(rows, _late_columns(transform) if late else _window_columns(transform), limit)
        return
    shown = [] if rows is None else to_display(rows)
    if form == "json":
        print_json(shown)
        return
    writer = csv.DictWriter(sys.stdout, existing, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in shown)


def _late_table(transform: "Definition") -> str:
    from tidemark.define.rollup import base_transform

    base = base_transform(transform)
    if base.name != transform.name:
        raise DefinitionError(
            f"'{transform.name}' is a roll-up, and its too-late events are those of "
            f"'{base.name}': use `tidemark show {base.name} --late`."
        )
    return base.late_table


def _check(transform: "Definition", wanted: "KeyChoice", existing: list[str]) -> None:
    from tidemark.quality.quarantine import Choice

    Choice(keys=wanted).check(transform)
    for name in wanted:
        if existing and name not in existing:
            raise DefinitionError(
                f"The late table of '{transform.name}' has no column '{name}', because the asset's "
                "function computes this key: omit --key."
            )


def _condition(
    start: int | None, end: int | None, with_keys: "ds.Expression | None", *, final: bool
) -> "ds.Expression | None":
    """Return the filter of the rows to show; None to show all rows."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from tidemark.base.instants import as_datetime
    from tidemark.store.rows import INSTANT

    begins = ds.field("window_start")
    parts = [] if with_keys is None else [with_keys]
    if start is not None:
        parts.append(begins >= pa.scalar(as_datetime(start), INSTANT))
    if end is not None:
        parts.append(begins < pa.scalar(as_datetime(end), INSTANT))
    if final:
        parts.append(ds.field("final"))
    found: ds.Expression | None = None
    for part in parts:
        found = part if found is None else found & part
    return found


def _window_columns(transform: "Definition") -> list[str]:
    standard = ["late_events", "revision", "timing", "final"]
    return ["window_start", *transform.keys, *transform.aggregates, *standard]


def _late_columns(transform: "Definition") -> list[str]:
    standard = ["window_start", "reason", "lateness_seconds", "correlation_id"]
    return [*transform.source.columns, *standard]


def _draw(rows: "pa.Table", columns: list[str], limit: int) -> None:
    from tidemark.store.rows import to_display

    if not rows.num_rows:
        err().print("No rows found.")
        return
    shown = [name for name in columns if name in rows.column_names]
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in shown:
        table.add_column(name, overflow="fold", no_wrap=name == "window_start")
    for row in to_display(rows.select(shown)):
        table.add_row(*(escape(_text(value)) for value in row.values()))
    out().print(table)
    if rows.num_rows == limit:
        err().print(f"Only the newest {format_count(limit, 'row')}: increase --limit to show more.")


def _text(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, (list, dict, tuple)):
        return as_json(value)
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _field(value: object) -> object:
    """Return a value as a CSV field: arrays, maps and structs as JSON, instants as ISO 8601."""
    if isinstance(value, (list, dict, tuple)):
        return as_json(value)
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
