"""`tidemark ingest --recorded`: load recorded data into a source's event log.

The records land in the source's folder as files, in the order of their arrival, and are ingested
with everything else in that folder.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import message_console
from tidemark_streaming.cli.context import Home, parse_range
from tidemark_streaming.cli.ingestion.arrivals import ingest_and_report
from tidemark_streaming.cli.output import Output

_SPAN = "6 hours"
_PANEL = "Recorded data"
"""The title of these options in the help."""

Recorded = Annotated[
    bool,
    typer.Option(
        "--recorded",
        rich_help_panel=_PANEL,
        help="Load the source's recording. The bundled flights and weather are recordings.",
    ),
]
Days = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=_PANEL, help="Load this many days; all if omitted."),
]
ArrivedFrom = Annotated[
    str | None,
    typer.Option(
        "--arrived-from",
        metavar="DATE",
        rich_help_panel=_PANEL,
        help="Load only what arrived at or after this instant (ISO 8601).",
    ),
]
ArrivedTo = Annotated[
    str | None,
    typer.Option(
        "--arrived-to",
        metavar="DATE",
        rich_help_panel=_PANEL,
        help="Load only what arrived before this instant.",
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Playback speed: seconds of the recording per second; as fast as possible if omitted.",
    ),
]
Span = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="The recorded time that one arrival covers: a part of a day, as in '90 minutes', or "
        f"whole days; {_SPAN} if omitted.",
    ),
]


@dataclass(frozen=True)
class RecordingOptions:
    """The part of the recording to load, and its pace: the values of the command's options."""

    days: int | None
    arrived_from: str | None
    arrived_to: str | None
    speed: float | None
    span: str | None

    @property
    def is_empty(self) -> bool:
        """Whether no option has a value."""
        return self == RecordingOptions(None, None, None, None, None)


def ingest_recording(source: str, options: RecordingOptions, *, bulk: bool) -> Output:
    """Load a part of a source's recording into its event log.

    Args:
        bulk: true to write all arrivals in one commit.
    """
    from tidemark_streaming.connector import Excerpt
    from tidemark_streaming.ingest.play import no_recording, play_files

    begin = options.arrived_from
    end = options.arrived_to
    parse_range(begin, end, ("--arrived-from", "--arrived-to"))
    if options.days is not None and end is not None:
        raise DefinitionError("Use either --days or --arrived-to, not both.")
    if bulk and options.speed is not None:
        raise DefinitionError("--bulk loads everything at once, and can't be used with --speed.")
    home = Home()
    ingestion = home.find_ingestion(source)
    excerpt = Excerpt(
        start=begin,
        end=end,
        days=options.days,
        span=options.span or _SPAN,
        speed=options.speed,
    )
    if ingestion.play is None:
        raise no_recording(ingestion.source)
    store = home.open_warehouse()
    if end is None and options.days is None:
        message_console().print(
            "The whole recording is loaded by default: use --days or --arrived-to to load a part."
        )
    landing = home.settings.landing_of(source)
    batch = None if bulk else 1
    commits = play_files(store, ingestion, landing, excerpt, batch=batch)
    return ingest_and_report(store, ingestion.source, commits, home.settings)
