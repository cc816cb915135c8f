"""`tidemark correct`: count events that arrived too late."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, err, out, print_json, step
from tidemark_streaming.cli.context import Asset, warehouse
from tidemark_streaming.cli.processing.compute import as_plain


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("correct")(correct)


def correct(
    asset: Asset,
    show: Annotated[int, typer.Option("--limit", min=0, help="How many changes to list.")] = 20,
    json: Json = False,
) -> None:
    """Recompute the windows that lack late events, and list what changed.

    The events stay in the late table as a record; from now on their windows count them too. A
    correction processes no new arrival. You can run it next to a streaming query.

    Example: `tidemark correct departures_hourly`
    """
    from tidemark.quality import gx
    from tidemark.run import runner as run
    from tidemark_streaming.home import domains

    settings = Settings()
    transform = domains.transform(settings, asset)
    store = warehouse(settings, while_starting=gx.import_library)
    with step(f"correct {asset}") as work:
        done = run.correct(store, transform, most=run.MAX_LISTED_CHANGES if json else show)
        work.note = format_count(done.windows, "window") if done else "nothing to correct"
    if json:
        print_json(done and {**asdict(done), "facts": as_plain(done.facts)})
        return
    if done is None:
        err().print(f"No window of '{asset}' lacks a late event: there is nothing to correct.")
        return
    table = Table(
        title=f"{asset}: {format_count(done.total, 'value')} of "
        f"{format_count(done.windows, 'window')} changed, for "
        f"{format_count(done.facts.too_late, 'event')} that had been too late",
        title_justify="left",
    )
    for name in ("window start", "window end", "keys", "column", "before", "after"):
        table.add_column(name)
    for c in done.changes:
        keys = ", ".join(f"{k}={v}" for k, v in c.keys.items())
        table.add_row(
            c.window_start, c.window_end, keys, c.column, c.before or NONE, c.after or NONE
        )
    out().print(table)
    if done.total > show:
        out().print(f"… and {done.total - show:,} more; --limit lists more of them.")
