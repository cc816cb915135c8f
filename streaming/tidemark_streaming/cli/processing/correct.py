"""`tidemark correct`: count events that arrived too late."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark_streaming.cli.console import err, format_keys, print_table, step
from tidemark_streaming.cli.context import Asset, Home
from tidemark_streaming.cli.output import Output, with_json
from tidemark_streaming.cli.processing.compute import as_plain

if TYPE_CHECKING:
    from tidemark.run.correction import Correction


@with_json
def correct(
    asset: Asset,
    show: Annotated[int, typer.Option("--limit", min=0, help="How many changes to list.")] = 20,
) -> Output:
    """Recompute the windows that lack too-late events, and list what changed.

    From then on, these windows count the events, which stay in the late table as a record. A
    correction processes no new arrival. You can run it next to a streaming query.

    Example: `tidemark correct departures_hourly`
    """
    from tidemark.run import runner as run

    home = Home()
    transform = home.asset(asset)
    store = home.warehouse(validates=True)
    with step(f"correct {asset}") as work:
        done = run.correct(store, transform, most=run.MAX_LISTED_CHANGES)
        work.note = format_count(done.windows, "window") if done else "nothing to correct"
    if done is None:
        message = f"No window of '{asset}' lacks a too-late event: there is nothing to correct."
        return Output(None, lambda: err().print(message))
    data = {**asdict(done), "facts": as_plain(done.facts)}
    return Output(data, lambda: _show(asset, done, show))


def _show(asset: str, done: "Correction", most: int) -> None:
    title = (
        f"{asset}: {format_count(done.total, 'value')} of {format_count(done.windows, 'window')} "
        f"changed, for {format_count(done.facts.too_late, 'event')} that had been too late"
    )
    columns = ("window start", "window end", "keys", "column", "before", "after")
    rows = [
        (c.window_start, c.window_end, format_keys(c.keys), c.column, c.before, c.after)
        for c in done.changes[:most]
    ]
    print_table(columns, rows, title, more=done.total - most)
