"""`tidemark quarantine`: inspect, release and discard windows that failed an expectation.

Inspection does not need the engine; releasing and discarding do.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import (
    NONE,
    format_time,
    message_console,
    print_table,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import Asset, From, Home, To, parse_range
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.quality.quarantine import Choice
    from tidemark.store.warehouse import Warehouse

Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="NAME=VALUE",
        help="Only windows of this key, or with NAME alone, of a null key; may be repeated.",
    ),
]
_AllWindows = Annotated[bool, typer.Option("--all", help="All quarantined windows.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect, release or discard windows that failed an expectation."
    "\n\nExample: `tidemark quarantine list departures_hourly`",
)


@app.command("list")
@with_json
def list_quarantine(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Include discarded windows.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows.")] = 20,
) -> Output:
    """List quarantined windows with the expectations that they failed.

    Example: `tidemark quarantine list departures_hourly --from 2013-02-01`
    """
    transform, rows = _read_quarantine(asset, begin, end, key, discarded=discarded)
    return Output(rows, lambda: _print_list(transform, rows, limit))


def _print_list(definition: "Definition", rows: list[dict[str, Any]], limit: int) -> None:
    if not rows:
        message_console().print(f"No window of '{definition.name}' is in quarantine.")
        return
    cells = list[list[object]]()
    for row in rows[:limit]:
        cells_of_row: list[object] = [format_time(row["window_start"])]
        for key in definition.keys:
            # As text, because the table would group the digits of a number.
            cells_of_row.append(None if row[key] is None else str(row[key]))
        failed = [f"{error['expectation']}: {error['observed']}" for error in _list_errors(row)]
        cells_of_row += (row["events"], "\n".join(failed), row["quarantine_status"])
        cells.append(cells_of_row)
    columns = ("window start", *definition.keys, "events", "failed", "status")
    title = f"{definition.name}: {format_count(len(rows), 'window')} in quarantine"
    print_table(columns, cells, title)
    if len(rows) > limit:
        message_console().print(
            f"Only the first {format_count(limit, 'window')}: increase --limit to show more."
        )
    if len(rows) > 1:
        print_summary(rows)


@app.command("show")
@with_json
def show_quarantine(asset: Asset, begin: From = None, end: To = None, key: Keys = None) -> Output:
    """Show quarantined windows with their values and the result of each expectation.

    Example: `tidemark quarantine show departures_hourly --key origin=JFK`
    """
    transform, rows = _read_quarantine(asset, begin, end, key, discarded=True)
    return Output(rows, lambda: _print_windows(transform, rows))


def _print_windows(definition: "Definition", rows: list[dict[str, Any]]) -> None:
    if not rows:
        message_console().print(f"No such window of '{definition.name}' is in quarantine.")
    for row in rows:
        keys = escape(" ".join(f"{k}={row[k]}" for k in definition.keys))
        title = f"{format_time(row['window_start'])} {keys}  [dim]{row['quarantine_status']}[/]"
        table = Table(title=title, title_justify="left", show_header=False)
        for name in (*definition.aggregates, "events", "late_events", "timing", "final"):
            table.add_row(name, NONE if row[name] is None else escape(str(row[name])))
        for f in row["failed_expectations"]:
            table.add_section()
            failed = f"[bold]{escape(f['expectation'])}[/] ({f['level']})"
            table.add_row(failed, escape(f"expected {f['expected']}"))
            table.add_row("", escape(f"observed {f['observed']}"))
        result_console().print(table)


@app.command("release")
@with_json
def release_windows(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    all_windows: _AllWindows = False,
) -> Output:
    """Publish quarantined windows unchanged, marked `released`.

    They stay published until their values change.

    Example: `tidemark quarantine release departures_hourly --from 2013-02-09 --key origin=JFK`
    """
    from tidemark.quality import quarantine

    return _apply_decision(
        asset, "release", quarantine.release_windows, (begin, end), key, has_no_choice=all_windows
    )


@app.command("discard")
@with_json
def discard_windows(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    all_windows: _AllWindows = False,
) -> Output:
    """Discard quarantined windows until their values change.

    Example: `tidemark quarantine discard departures_hourly --all`
    """
    from tidemark.quality import quarantine

    return _apply_decision(
        asset, "discard", quarantine.discard_windows, (begin, end), key, has_no_choice=all_windows
    )


def _apply_decision(
    asset: str,
    verb: str,
    action: "Callable[[Warehouse, Definition, Choice], list[int]]",
    span: tuple[str | None, str | None],
    key: list[str] | None,
    *,
    has_no_choice: bool,
) -> Output:
    from tidemark.quality.quarantine import Choice

    home = Home()
    chosen = Choice(*parse_range(*span), parse_keys(key))
    if has_no_choice == (chosen != Choice()):
        raise DefinitionError(
            f"Specify which windows to {verb}: --from and --to, --key, or --all alone."
        )
    transform = home.find_asset(asset)
    store = home.open_warehouse()
    with report_step(f"{verb} windows of {asset}") as work:
        count = len(action(store, transform, chosen))
        work.note = format_count(count, "window")
    return Output({"asset": asset, "action": verb, "windows": count}, lambda: None)


def _read_quarantine(
    asset: str, begin: str | None, end: str | None, key: list[str] | None, *, discarded: bool
) -> "tuple[Definition, list[dict[str, Any]]]":
    from tidemark.quality.quarantine import Choice
    from tidemark_streaming.snapshot.check_results import read_quarantine

    home = Home()
    chosen = Choice(*parse_range(begin, end), parse_keys(key))
    transform = home.find_asset(asset)
    rows = read_quarantine(home.open_snapshot(), transform, chosen)
    if discarded:
        return transform, rows
    return transform, [row for row in rows if row["quarantine_status"] == "quarantined"]


def parse_keys(texts: list[str] | None) -> dict[str, str | None]:
    """Parse `--key` options into values by key name. A name without `=` stands for null."""
    keys: dict[str, str | None] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if equals:
            keys[name] = value
        else:
            keys[name] = None
    return keys


def print_summary(rows: list[dict[str, Any]]) -> None:
    """Print a table of failed windows by expectation, the most frequent first."""
    by_expectation: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for name in dict.fromkeys(f["expectation"] for f in _list_errors(row)):
            by_expectation.setdefault(name, []).append(row)
    cells = list[tuple[object, ...]]()
    for name, failing in sorted(by_expectation.items(), key=lambda item: -len(item[1])):
        starts = [format_time(row["window_start"]) for row in failing]
        events = sum(row["events"] for row in failing)
        cells.append((name, len(failing), events, min(starts), max(starts)))
    print_table(("failed", "windows", "events", "from", "to"), cells, "by expectation")


def _list_errors(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in row["failed_expectations"] if f["level"] == "error"]
