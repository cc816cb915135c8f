"""`tidemark play`: load recorded data into a source's event log."""

from typing import Annotated

import typer

from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import err
from tidemark_streaming.cli.context import Bulk, Home, SourceName, parse_range
from tidemark_streaming.cli.ingestion.arrivals import ingest_and_report
from tidemark_streaming.cli.output import Output, with_json

_SPAN = "6 hours"


@with_json
def command(
    source: SourceName,
    days: Annotated[
        int | None, typer.Option(min=1, help="Load this many days; all if omitted.")
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--arrived-from",
            metavar="DATE",
            help="Load only what arrived at or after this instant (ISO 8601).",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--arrived-to", metavar="DATE", help="Load only what arrived before this instant."
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            help="Playback speed: seconds of the recording per second; as fast as possible "
            "if omitted."
        ),
    ] = None,
    span: Annotated[
        str,
        typer.Option(
            help="The recorded time that one arrival covers: a part of a day, as in '90 minutes', "
            "or whole days."
        ),
    ] = _SPAN,
    bulk: Bulk = False,
) -> Output:
    """Load a source's recorded data into its event log, exactly once.

    The records land in the source's folder as files, in the order of their arrival, and are
    ingested with everything else in that folder. If the command is killed, the next one resumes
    where the event log ends. The bundled flights and weather are recordings.

    Example: `tidemark play flights --days 60 --bulk`
    """
    from tidemark_streaming.connector import Excerpt
    from tidemark_streaming.ingest.play import play

    parse_range(begin, end, ("--arrived-from", "--arrived-to"))
    if days is not None and end is not None:
        raise DefinitionError("Use either --days or --arrived-to, not both.")
    if bulk and speed is not None:
        raise DefinitionError("--bulk loads everything at once, and can't be used with --speed.")
    home = Home()
    ingestion = home.ingestion(source)
    part = Excerpt(start=begin, end=end, days=days, span=span, speed=speed)
    if ingestion.play is None:
        raise DefinitionError(
            f"Source '{source}' has no recording: `tidemark ingest {source}` ingests its pending "
            "data."
        )
    store = home.warehouse()
    if end is None and days is None:
        err().print(
            "The whole recording is loaded by default: use --days or --arrived-to to load a part."
        )
    commits = play(
        store, ingestion, home.settings.landing_of(source), part, batch=None if bulk else 1
    )
    return ingest_and_report("play", store, ingestion.source, commits, home.settings)
