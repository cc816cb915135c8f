"""`tidemark show`: show windows, late events and contracts of assets, and events of sources.

The command does not need the engine.
"""

import csv
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError, describe_unknown
from tidemark_streaming.cli.console import NONE, format_time, message_console, result_console
from tidemark_streaming.cli.context import AssetOrSource, From, Home, To, parse_range
from tidemark_streaming.cli.inspection.quarantine import Keys, parse_keys
from tidemark_streaming.cli.output import as_json, print_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from tidemark.define.definition import Definition
    from tidemark.define.source import Source
    from tidemark.store.key_choice import KeyChoice
    from tidemark_streaming.snapshot.tables import Tables


@dataclass(frozen=True)
class _Choice:
    """The rows to show: the values of the command's options."""

    span: tuple[int | None, int | None]
    keys: "KeyChoice"
    limit: int
    final: bool
    late: bool


def show_rows(
    name: AssetOrSource,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows.")] = 20,
    final: Annotated[bool, typer.Option("--final", help="Only final windows.")] = False,
    late: Annotated[
        bool,
        typer.Option(
            "--late",
            help="Show too-late events, the newest first; for a join, the rows without part in it.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print all columns as JSON on stdout, for scripts.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print all columns as CSV on stdout, for scripts.")
    ] = False,
    contract: Annotated[
        bool,
        typer.Option("--contract", help="Print the asset's data contract (ODCS 3.1) as YAML."),
    ] = False,
    owner: Annotated[
        list[str] | None,
        typer.Option(
            help="With --contract: who answers for the table, as an email address or team:NAME; "
            "may be repeated."
        ),
    ] = None,
) -> None:
    """Show the windows that an asset has published, or the events of a source, the newest first.

    For a source, --from and --to refer to the event time, and --key to any column.
    With --contract, show no rows, but what readers of the asset's table can rely on.

    Example: `tidemark show orders_hourly --from 2026-01-01 --key city=york`
    """
    from tidemark.define.source import Source
    from tidemark.store.rows import to_display
    from tidemark_streaming.snapshot.tables import Tables

    if contract:
        shows_rows = late or final or json or as_csv or key or begin or end
        if shows_rows:
            raise DefinitionError(
                "A contract describes the whole table: use --contract without options that choose "
                "rows or their format."
            )
        _print_contract(Home(), name, owner or [])
        return
    if owner:
        raise DefinitionError("--owner is part of a data contract: add --contract.")
    if late and final:
        raise DefinitionError(
            "Use either --final, for windows, or --late, for events, but not both."
        )
    if json and as_csv:
        raise DefinitionError("Use either --json or --csv, not both.")
    choice = _Choice(parse_range(begin, end), parse_keys(key), limit, final=final, late=late)
    home = Home()
    source_or_asset = home.find_asset_or_source(name)
    tables = Tables.of_database(home.settings)
    if isinstance(source_or_asset, Source):
        existing, rows, columns = _read_events(tables, source_or_asset, choice)
    else:
        existing, rows, columns = _read_asset(tables, source_or_asset, choice)
    if json or as_csv:
        shown = [] if rows is None else to_display(rows)
        if json:
            print_json(shown)
        else:
            _print_csv(existing, shown)
    elif rows is not None:
        _print_table(rows, columns, limit)


def _print_contract(home: Home, name: str, owners: list[str]) -> None:
    from tidemark.define.source import Source
    from tidemark.store.data_contract import export_contract

    asset = home.find_asset_or_source(name)
    if isinstance(asset, Source):
        raise DefinitionError(
            f"'{name}' is a source: --contract describes the windows that an asset publishes. Use "
            "the name of an asset."
        )
    sys.stdout.write(export_contract(asset, owners=owners, settings=home.settings))


def _print_csv(columns: list[str], rows: list[dict[str, Any]]) -> None:
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        fields = {name: _format_field(value) for name, value in row.items()}
        writer.writerow(fields)


def _read_asset(
    tables: "Tables",
    definition: "Definition",
    choice: "_Choice",
) -> "tuple[list[str], pa.Table | None, list[str]]":
    """Return the columns of an asset's table, the newest rows, and the columns to draw."""
    from tidemark.quality.quarantine import Choice
    from tidemark.store.key_choice import key_condition

    asset = definition.name
    if choice.late:
        table = _late_table(definition)
        columns = _late_columns(definition)
        order_column = "arrival"
        further_columns = ["position"]
    else:
        table = definition.published_table
        columns = _window_columns(definition)
        order_column = "window_start"
        further_columns = tables.existing_columns(table, definition.keys)
    types = tables.column_types(table)
    if not types:
        message_console().print(f"'{asset}' has no rows yet: `tidemark run {asset}` computes them.")
    Choice(keys=choice.keys).check_keys(definition)
    if not types:
        return [], None, columns
    with_keys = key_condition(choice.keys, types, asset)
    chosen = _combine_conditions(choice, "window_start", with_keys)
    rows = tables.read_newest(table, order_column, chosen, choice.limit, further_columns)
    return list(types), rows, columns


def _read_events(
    tables: "Tables",
    source: "Source",
    choice: "_Choice",
) -> "tuple[list[str], pa.Table | None, list[str]]":
    """Return the columns of a source's event log, the newest rows, and the columns to draw.

    With `late`, read the rows of the bases that take no part in a derived source.
    """
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark.store.key_choice import key_condition
    from tidemark_streaming.snapshot.source_rows import newest_rows

    name = source.name
    keys = choice.keys
    late = choice.late
    if choice.final:
        raise DefinitionError(f"'{name}' is a source, which has no windows: leave out --final.")
    if late and not isinstance(source, DerivedSource):
        raise DefinitionError(
            f"'{name}' is a source, whose events can be late only in an asset: use `tidemark show "
            f"--late` with the asset, or `tidemark dead-letters show {name}`."
        )
    if late and (keys or choice.span != (None, None)):
        raise DefinitionError(
            f"Rows without part in '{name}' are stored as JSON: leave out --from, --to, and --key."
        )
    if late:
        table = source.dead_letters_table
        columns = ["arrival", "position", "reason", "bytes", "read_from"]
    else:
        table = source.log_table
        columns = ["arrival", "position", *source.columns]
    types = tables.column_types(table)
    for column in keys:
        if column not in source.columns:
            raise DefinitionError(describe_unknown(f"column of '{name}'", column, source.columns))
        if types and column not in types:
            raise DefinitionError(
                f"'{name}' has no event since its column '{column}' was declared: omit --key."
            )
    with_keys = None
    if types:
        with_keys = key_condition(keys, types, name)
    chosen = _combine_conditions(choice, source.event_time, with_keys)
    rows = newest_rows(tables, source, table, chosen, choice.limit)
    if rows is None:
        message_console().print(f"'{name}' has no events yet: `tidemark ingest {name}` adds them.")
    return list(types), rows, columns


def _late_table(definition: "Definition") -> str:
    from tidemark.define.rollup import base_transform

    base = base_transform(definition)
    if base.name != definition.name:
        raise DefinitionError(
            f"'{definition.name}' is a roll-up, and its too-late events are those of "
            f"'{base.name}': use `tidemark show {base.name} --late`."
        )
    return base.late_table


def _combine_conditions(
    choice: "_Choice", time: str, with_keys: "ds.Expression | None"
) -> "ds.Expression | None":
    """Return the filter of the rows to show; None to show all rows.

    Args:
        time: the column that must be in [start, end).
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    from tidemark.base.instants import as_datetime
    from tidemark.store.rows import INSTANT

    begins = ds.field(time)
    conditions = list[ds.Expression]()
    if with_keys is not None:
        conditions.append(with_keys)
    start, end = choice.span
    if start is not None:
        conditions.append(begins >= pa.scalar(as_datetime(start), INSTANT))
    if end is not None:
        conditions.append(begins < pa.scalar(as_datetime(end), INSTANT))
    if choice.final:
        conditions.append(ds.field("final"))
    if not conditions:
        return None
    return reduce(and_, conditions)


def _window_columns(definition: "Definition") -> list[str]:
    standard = ["late_events", "revision", "timing", "final"]
    return ["window_start", *definition.keys, *definition.aggregates, *standard]


def _late_columns(definition: "Definition") -> list[str]:
    standard = ["window_start", "reason", "lateness_seconds", "correlation_id"]
    return [*definition.source.columns, *standard]


def _print_table(rows: "pa.Table", columns: list[str], limit: int) -> None:
    from tidemark.store.rows import to_display

    if not rows.num_rows:
        message_console().print("No rows found.")
        return
    shown = [name for name in columns if name in rows.column_names]
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in shown:
        table.add_column(name, overflow="fold", no_wrap=name == "window_start")
    for row in to_display(rows.select(shown)):
        table.add_row(*(escape(_format_cell(value)) for value in row.values()))
    result_console().print(table)
    if rows.num_rows == limit:
        message_console().print(
            f"Only the newest {format_count(limit, 'row')}: increase --limit to show more."
        )


def _format_cell(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, (list, dict, tuple)):
        return as_json(value)
    if isinstance(value, float):
        return f"{value:,.6g}"
    return str(value)


def _format_field(value: object) -> object:
    """Return a value as a CSV field.

    Arrays, maps and structs become JSON, instants ISO 8601, and bytes text.
    """
    if isinstance(value, (list, dict, tuple)):
        return as_json(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value
