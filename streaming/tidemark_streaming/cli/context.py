"""Options and set-up that most commands share: arguments, the engine, a range of windows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import BEGINNING, instant, iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import step

if TYPE_CHECKING:
    from tidemark.define.source import Source
    from tidemark.store.warehouse import Warehouse

Asset = Annotated[str, typer.Argument(help="An asset; `tidemark status` lists them.")]
SourceName = Annotated[str, typer.Argument(help="A source; `tidemark status` lists them.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DATE",
        help="First window start, ISO 8601 in UTC; the earliest if omitted.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="DATE", help="End of the window starts, exclusive; the latest if omitted."
    ),
]
ArrivalsPerRun = Annotated[
    int | None,
    typer.Option(
        "--max-arrivals",
        min=1,
        help="Process at most this many arrivals per run; no limit if omitted.",
    ),
]
RowsPerRun = Annotated[
    int | None,
    typer.Option(min=1, help="Process at most this many events per run, but at least one arrival."),
]
BytesPerRun = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Process at most this many bytes per run, but at least one arrival.",
    ),
]
Range = tuple[int, int] | None


def warehouse(
    settings: Settings,
    session_id: str | None = None,
    while_starting: Callable[[], None] | None = None,
) -> "Warehouse":
    """Return the warehouse with a session of the engine, which is started if necessary.

    Args:
        while_starting: work that the command needs anyway, to do while an engine starts.
    """
    from tidemark import engine
    from tidemark.store.warehouse import Warehouse

    with step("engine") as work:
        engine.ensure(settings, work.show, while_starting)
        spark = engine.session(settings, session_id)
        work.note = f"Spark {spark.version}"
    return Warehouse(spark, settings.warehouse, settings.database)


def parse_range(
    begin: str | None, end: str | None, options: tuple[str, str] = ("--from", "--to")
) -> tuple[int | None, int | None]:
    """Parse the two ends of a range into microseconds.

    Raises:
        DefinitionError: one is not a date, or the range is empty.
    """
    first = None if begin is None else instant(begin)
    last = None if end is None else instant(end)
    if first is not None and last is not None and last <= first:
        before, after = options
        raise DefinitionError(
            f"The range from {iso(first)} to {iso(last)} is empty: {after} must be after {before}."
        )
    return first, last


def resolve_windows(
    warehouse: "Warehouse", source: "Source", reach: int, begin: int | None, end: int | None
) -> Range:
    """Return the requested range of window starts. The source's events replace a missing bound.

    Args:
        reach: how far an event may lie after the start of a window that holds it.

    Raises:
        DataError: the source has no events in the range.
    """
    if begin is None and end is None:
        return None
    from tidemark.store.event_log.log import Log

    timeline = Log(warehouse, source).timeline()
    oldest = min((a.min_event_time for a in timeline if a.min_event_time is not None), default=None)
    newest = max((a.max_event_time for a in timeline if a.max_event_time is not None), default=None)
    if oldest is None or newest is None:
        raise DataError(f"Source '{source.name}' has no events yet: use `tidemark ingest`.")
    first = max(oldest - reach + 1, BEGINNING) if begin is None else begin
    last = newest + 1 if end is None else end
    if last <= oldest - reach or first > newest or last <= first:
        raise DataError(
            f"No window of '{source.name}' lies from {iso(first)} to {iso(last)}: its events are "
            f"from {iso(oldest)} to {iso(newest)}."
        )
    return first, last
