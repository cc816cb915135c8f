"""`tidemark end`: end a source, so that its windows close."""

from typing import Annotated

import typer

from tidemark.base.errors import DataError
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    Json,
    confirm,
    err,
    facts_table,
    out,
    print_json,
    print_status,
    step,
)
from tidemark_streaming.cli.context import SourceName, warehouse


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("end")(command)


def command(
    source: SourceName,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    json: Json = False,
) -> None:
    """Close a source: no more events are expected, and every window closes.

    The end is an arrival without rows, after which the watermark is infinite. The next run of each
    asset publishes the open windows, including `Global()` windows and those of a `Perfect()`
    watermark, which nothing else closes. You cannot reopen a closed source.

    Example: `tidemark end flights`
    """
    from tidemark_streaming.home import domains
    from tidemark_streaming.ingest.ingest import end
    from tidemark_streaming.snapshot.snapshot import Snapshot

    settings = Settings()
    found = domains.source(settings, source)
    arrivals = Snapshot(settings).timeline(source)
    if not arrivals:
        raise DataError(f"Nothing has arrived for '{source}' yet, so it can't be ended.")
    if arrivals[-1].ends:
        print_status(
            f"The source '{source}' has already ended, with arrival {arrivals[-1].arrival}."
        )
        last = arrivals[-1]
    elif not yes and not confirm(
        f"end the source '{source}'",
        f"End the source '{source}'? It will accept no more events, and this can't be undone.",
    ):
        err().print("The source was not ended.")
        return
    else:
        store = warehouse(settings)
        with step(f"end {source}") as work:
            last = end(store, found)
            work.note = f"arrival {last.arrival}"
    result: dict[str, object] = {
        "source": source,
        "arrival": last.arrival,
        "watermark": iso(last.after),
    }
    if json:
        print_json(result)
        return
    out().print(facts_table("", result))
