"""`tidemark quarantine`: inspect, release and discard windows that failed an expectation.

Inspection does not need the engine; releasing and discarding do.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, err, out, print_json, step
from tidemark_streaming.cli.context import Asset, From, To, parse_range, warehouse

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.quality.quarantine import Choice
    from tidemark.store.warehouse import Warehouse

Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="NAME=VALUE", help="Only windows of this key; may be repeated."),
]
Whole = Annotated[bool, typer.Option("--all", help="All quarantined windows.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect, release or discard windows that failed an expectation."
    "\n\nExample: `tidemark quarantine list departures_hourly`",
)


def register(to: typer.Typer) -> None:
    """Register the commands."""
    to.add_typer(app, name="quarantine")


@app.command("list")
def list_(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Include discarded windows.")
    ] = False,
    json: Json = False,
) -> None:
    """List quarantined windows with the expectations that they failed.

    Example: `tidemark quarantine list departures_hourly --from 2013-02-01`
    """
    transform, rows = _read_quarantine(asset, begin, end, key, discarded=discarded)
    if json:
        print_json([_plain(row) for row in rows])
        return
    if not rows:
        err().print(f"No window of '{asset}' is in quarantine.")
        return
    table = Table(
        title=f"{asset}: {format_count(len(rows), 'window')} in quarantine", title_justify="left"
    )
    for name in ("window start", *transform.keys, "events", "failed", "status"):
        table.add_column(name)
    for row in rows:
        # Values of events may look like rich's markup.
        failed = escape("\n".join(f"{f['expectation']}: {f['observed']}" for f in _errors(row)))
        keys = [NONE if row[k] is None else escape(str(row[k])) for k in transform.keys]
        start = f"{row['window_start']:%Y-%m-%d %H:%M:%S}"
        table.add_row(start, *keys, f"{row['events']:,}", failed, row["status"])
    out().print(table)
    if len(rows) > 1:
        out().print(summary_table(rows))


@app.command("show")
def show(
    asset: Asset, begin: From = None, end: To = None, key: Keys = None, json: Json = False
) -> None:
    """Show quarantined windows with their values and the result of each expectation.

    Example: `tidemark quarantine show departures_hourly --key origin=JFK`
    """
    transform, rows = _read_quarantine(asset, begin, end, key, discarded=True)
    if json:
        print_json([_plain(row) for row in rows])
        return
    if not rows:
        err().print(f"No such window of '{asset}' is in quarantine.")
    for row in rows:
        keys = " ".join(f"{k}={row[k]}" for k in transform.keys)
        title = f"{row['window_start']:%Y-%m-%d %H:%M:%S} {keys}  [dim]{row['status']}[/]"
        table = Table(title=title, title_justify="left", show_header=False)
        for name in (*transform.aggregates, "events", "late_events", "timing", "final"):
            table.add_row(name, NONE if row[name] is None else str(row[name]))
        for f in row["failed"]:
            table.add_section()
            table.add_row(
                f"[bold]{f['expectation']}[/] ({f['level']})", f"expected {f['expected']}"
            )
            table.add_row("", f"observed {f['observed']}")
        out().print(table)


@app.command("release")
def release(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    whole: Whole = False,
    json: Json = False,
) -> None:
    """Publish quarantined windows unchanged, marked `released`.

    They stay published until their values change.

    Example: `tidemark quarantine release departures_hourly --from 2013-02-09 --key origin=JFK`
    """
    from tidemark.quality import quarantine

    _decide(asset, "release", quarantine.release, (begin, end), key, whole, json)


@app.command("discard")
def discard(
    asset: Asset,
    begin: From = None,
    end: To = None,
    key: Keys = None,
    whole: Whole = False,
    json: Json = False,
) -> None:
    """Discard quarantined windows until their values change.

    Example: `tidemark quarantine discard departures_hourly --all`
    """
    from tidemark.quality import quarantine

    _decide(asset, "discard", quarantine.discard, (begin, end), key, whole, json)


def _decide(
    asset: str,
    what: str,
    action: "Callable[[Warehouse, Definition, Choice], list[int]]",
    span: tuple[str | None, str | None],
    key: list[str] | None,
    whole: bool,
    json: bool,
) -> None:
    from tidemark.quality.quarantine import Choice
    from tidemark_streaming.home import domains

    settings = Settings()
    chosen = Choice(*parse_range(*span), parse_keys(key))
    if whole == (chosen != Choice()):
        raise DefinitionError(
            f"Specify which windows to {what}: --from and --to, --key, or --all alone."
        )
    transform = domains.transform(settings, asset)
    store = warehouse(settings)
    with step(f"{what} windows of {asset}") as work:
        count = len(action(store, transform, chosen))
        work.note = format_count(count, "window")
    if json:
        print_json({"asset": asset, "action": what, "windows": count})


def _read_quarantine(
    asset: str, begin: str | None, end: str | None, key: list[str] | None, *, discarded: bool
) -> "tuple[Definition, list[dict[str, Any]]]":
    from tidemark.quality.quarantine import Choice
    from tidemark_streaming.home import domains
    from tidemark_streaming.snapshot.check_results import read_quarantine
    from tidemark_streaming.snapshot.snapshot import Snapshot

    chosen, settings = Choice(*parse_range(begin, end), parse_keys(key)), Settings()
    transform = domains.transform(settings, asset)
    rows = read_quarantine(Snapshot(settings), transform, chosen)
    return transform, [r for r in rows if discarded or r["status"] == "quarantined"]


def parse_keys(given: list[str] | None) -> dict[str, str]:
    """Parse `--key` options into values by key name."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise DefinitionError(f"'{text}' is not a key and a value: write --key NAME=VALUE.")
        found[name] = value
    return found


def summary_table(rows: list[dict[str, Any]]) -> Table:
    """Return a table of failed windows by expectation, the most frequent first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for name in dict.fromkeys(f["expectation"] for f in _errors(row)):
            found.setdefault(name, []).append(row)
    table = Table(title="by expectation", title_justify="left")
    for name in ("failed", "windows", "events", "from", "to"):
        table.add_column(name)
    for name, failing in sorted(found.items(), key=lambda item: -len(item[1])):
        starts = [f"{row['window_start']:%Y-%m-%d %H:%M:%S}" for row in failing]
        events = sum(row["events"] for row in failing)
        table.add_row(escape(name), f"{len(failing):,}", f"{events:,}", min(starts), max(starts))
    return table


def _errors(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in row["failed"] if f["level"] == "error"]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()}
