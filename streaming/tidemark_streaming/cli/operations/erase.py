"""`tidemark erase`: delete a person's events, with a report of the affected tables."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import (
    ask_confirmation,
    format_keys,
    message_console,
    print_table,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import Home, SourceName, Yes
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark_streaming.home.erasure import ErasureRequest, Report

_LISTED = 20


@with_json
def erase_events(
    source: SourceName,
    where: Annotated[
        str,
        typer.Option(metavar="SQL", help="The events, as a SQL condition on the source's columns."),
    ],
    containing: Annotated[
        list[str] | None,
        typer.Option(
            "--dead-letters-containing",
            metavar="TEXT",
            help="Also erase dead letters with this text in bytes, key or headers. Repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be deleted.")
    ] = False,
    vacuum: Annotated[
        bool,
        typer.Option("--vacuum", help="Delete old files immediately, which ends time travel."),
    ] = False,
    yes: Yes = False,
) -> Output:
    """Delete a person's events from a source, and everything that was computed from them.

    The command deletes the events from the event log in one commit, then recomputes their windows
    and deletes their late events, quarantined rows, check results and mart rows. If it is killed,
    run it again. Stop the source's ingest first, and with **--vacuum** its streaming queries.
    Other runs and queries need not be stopped: those that began before start again, and new ones
    wait until the command ends. The report lists what was deleted and what
    the command cannot reach.

    Example: `tidemark erase flights --where "tailnum = 'N725MQ'" --dry-run`
    """
    from tidemark import engine
    from tidemark_streaming.home.erasure import ErasureRequest, erase_everywhere

    home = Home()
    request = ErasureRequest(
        home.find_source(source), where, tuple(containing or ()), dry_run, vacuum
    )
    if any(not text for text in request.texts):
        raise DefinitionError(
            "--dead-letters-containing must not be empty: every dead letter contains the empty "
            "text."
        )
    if not (dry_run or yes):
        question = f"Permanently delete these events of '{source}'?"
        ask_confirmation(f"delete events of '{source}'", question, "Nothing was deleted.")
    store = home.open_warehouse(validates=True)
    domains = home.definitions
    settings = home.settings
    with report_step(f"{'search' if dry_run else 'erase from'} {source}") as work:
        report = erase_everywhere(
            settings, store, domains, request, engine.ensure_engine(settings), work.show_activity
        )
        work.note = format_count(report.erased.events, "event")
    return Output(asdict(report), lambda: _print_report(report, request))


def _print_report(report: "Report", request: "ErasureRequest") -> None:
    erased = report.erased
    if erased.places:
        rows = [
            *((entry.table, entry.rows, entry.what) for entry in erased.places),
            *((name, "all", "removed") for name in erased.removed),
            *((name, "all", "rebuilt") for name in report.marts),
        ]
        title = "planned changes" if request.dry_run else "changes"
        print_table(("table", "rows", ""), rows, title, right_columns=("rows",))
    else:
        result_console().print("The event log has no such events.")
    if erased.resumed:
        result_console().print(
            f"Completed first: {format_count(erased.resumed, 'interrupted erasure')}."
        )
    if erased.swept:
        result_console().print(f"Removed temporary data of killed processes: {erased.swept}.")
    if report.vacuumed:
        files = sum(entry.removed for entry in report.vacuumed)
        result_console().print(
            f"Removed {format_count(files, 'old file')}: earlier versions can no longer be read."
        )
    elif report.readable_until is not None:
        result_console().print(
            "Earlier versions of the tables contain the events until `tidemark maintain` removes "
            f"their files, after {report.readable_until}; --vacuum removes them now.",
        )
    for note in report.beyond:
        message_console().print(f"not erased: {note}", markup=False, soft_wrap=True)
    for entry in erased.sent:
        for window in entry.windows[:_LISTED]:
            keys = format_keys(window["keys"])
            message_console().print(
                f"  {entry.asset} {window['window_start']} {keys}", markup=False
            )
