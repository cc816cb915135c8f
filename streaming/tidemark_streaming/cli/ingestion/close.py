"""`tidemark close`: close a source, so that its windows close."""

from tidemark.base.errors import DataError
from tidemark.base.instants import format_instant
from tidemark_streaming.cli.console import ask_confirmation, print_facts, print_status, report_step
from tidemark_streaming.cli.context import Home, SourceName, Yes
from tidemark_streaming.cli.output import Output, with_json


@with_json
def close_source(source: SourceName, yes: Yes = False) -> Output:
    """Close a source: no more events are expected, and every window closes.

    The command adds an arrival without rows, after which the watermark is infinite. The next run of
    each asset publishes the open windows, including `Global()` windows and those of a `Perfect()`
    watermark, which nothing else closes. You cannot reopen a closed source.

    Example: `tidemark close flights`
    """
    from tidemark_streaming.ingest.ingest import end_source

    home = Home()
    ended = home.find_source(source)
    arrivals = home.open_snapshot().read_timeline(source)
    if not arrivals:
        raise DataError(
            f"Nothing has arrived for '{source}' yet, so it can't be closed: run `tidemark ingest "
            f"{source}` first."
        )
    last = arrivals[-1]
    if last.ends_source:
        print_status(f"The source '{source}' has already ended, with arrival {last.arrival}.")
    else:
        if not yes:
            ask_confirmation(
                f"close the source '{source}'",
                f"Close the source '{source}'? It will accept no more events, and this can't be "
                "undone.",
                "The source was not closed.",
            )
        store = home.open_warehouse()
        with report_step(f"close {source}") as work:
            last = end_source(store, ended)
            work.note = f"arrival {last.arrival}"
    result = {"source": source, "arrival": last.arrival, "watermark": format_instant(last.after)}
    return Output(result, lambda: print_facts(result))
