"""Parts that most commands share: arguments, options, the home, and ranges of windows."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.errors import DataError, DefinitionError, EngineError, EngineLostError
from tidemark.base.instants import BEGINNING, format_instant, parse_instant
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import report_step

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark.define.source import Source
    from tidemark.store.integrity.damage import Damage
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.connector import Ingestion
    from tidemark_streaming.home.domains import Domains
    from tidemark_streaming.snapshot.snapshot import Snapshot

Asset = Annotated[str, typer.Argument(help="An asset; `tidemark status` lists them.")]
AssetOrDerived = Annotated[
    str, typer.Argument(help="An asset or a derived source; `tidemark status` lists them.")
]
AssetOrSource = Annotated[
    str, typer.Argument(help="An asset or a source; `tidemark status` lists them.")
]
SourceName = Annotated[str, typer.Argument(help="A source; `tidemark status` lists them.")]
Yes = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]
Bulk = Annotated[
    bool,
    typer.Option("--bulk", help="Write all arrivals in one commit: the same event log, faster."),
]
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


class Home:
    """The settings, definitions and tables that a command works on.

    The definitions and the engine's client are imported only when they are used.
    """

    def __init__(self) -> None:
        self.settings = Settings()

    @property
    def definitions(self) -> "Domains":
        """The definitions of all domains."""
        from tidemark_streaming.home import domains

        return domains.load_domains(self.settings.domains)

    def find_asset(self, name: str) -> "Definition":
        """Return the asset with a name, or raise a DefinitionError that lists all assets."""
        from tidemark_streaming.home import domains

        return domains.find_object(self.settings, "asset", name, self.definitions.transforms)

    def find_source(self, name: str) -> "Source":
        """Return the source with a name, or raise a DefinitionError that lists all sources."""
        from tidemark_streaming.home import domains

        return domains.find_object(self.settings, "source", name, self.definitions.sources)

    def find_asset_or_source(self, name: str) -> "Definition | Source":
        """Return the asset or source with a name, or raise a DefinitionError that lists all."""
        from tidemark_streaming.home import domains

        loaded = self.definitions
        objects = {**loaded.sources, **loaded.transforms}
        return domains.find_object(self.settings, "asset or source", name, objects)

    def find_derived(self, name: str) -> "DerivedSource | None":
        """Return the derived source with a name; None if there is none."""
        from tidemark.define.derived.derived_source import DerivedSource

        source = self.definitions.sources.get(name)
        return source if isinstance(source, DerivedSource) else None

    def find_ingestion(self, source: str) -> "Ingestion":
        """Return the ingestion of a source, or raise a DefinitionError that lists all sources."""
        from tidemark_streaming.home import domains

        return domains.find_object(self.settings, "source", source, self.definitions.ingestions)

    def find_damage(self) -> "list[Damage]":
        """Return the tables that lack a commit or a data file."""
        from tidemark.store.integrity import table_check

        domains = self.definitions
        folder = f"{self.settings.warehouse}/{self.settings.database}"
        return table_check.find_damage(folder, domains.all_sources(), domains.transforms.values())

    def open_snapshot(self, *transforms: "Definition") -> "Snapshot":
        """Return a reader of the tables that does not need the engine.

        Args:
            transforms: the assets whose progress or runs the command reads.
        """
        from tidemark_streaming.snapshot.snapshot import Snapshot

        return Snapshot(self.settings, transforms)

    def open_warehouse(
        self, session_id: str | None = None, *, validates: bool = False
    ) -> "Warehouse":
        """Return the warehouse with a session of the engine, which is started if necessary.

        Args:
            session_id: the ID of the session to use or to create; a new session if None.
            validates: true if the command validates rows. Great Expectations is then imported
                while the engine starts.
        """
        from tidemark import engine
        from tidemark.quality import gx
        from tidemark.store.warehouse import Warehouse

        settings = self.settings
        with report_step("engine") as work:
            engine.ensure_engine(
                settings, work.show_activity, gx.import_library if validates else None
            )
            try:
                spark = engine.connect_session(settings, session_id)
            except EngineError as error:
                if error.retriable:
                    # It answered a moment ago.
                    raise EngineLostError from error
                raise
            work.note = f"Spark {spark.version}"
        return Warehouse.of_project(settings, spark)


def parse_optional_instant(text: str | None) -> int | None:
    """Return an instant in microseconds; None if the user did not specify it."""
    if text is None:
        return None
    return parse_instant(text)


def parse_range(
    begin: str | None, end: str | None, options: tuple[str, str] = ("--from", "--to")
) -> tuple[int | None, int | None]:
    """Return the two ends of a range in microseconds; None for a missing end.

    Args:
        options: the names of the options with the two ends, for the error message.
    """
    first = parse_optional_instant(begin)
    last = parse_optional_instant(end)
    if first is not None and last is not None and last <= first:
        before, after = options
        raise DefinitionError(
            f"The range from {format_instant(first)} to {format_instant(last)} is empty: {after} "
            f"must be after {before}."
        )
    return first, last


def resolve_windows(
    warehouse: "Warehouse", definition: "Definition", begin: int | None, end: int | None
) -> tuple[int | None, int | None]:
    """Return the requested range of window starts, in microseconds.

    A missing bound is derived from the event times of the source. If both bounds are missing,
    return None for both, which stands for all windows.

    Raises:
        DataError: the source has no events, or none that a window in the range could contain.
    """
    if begin is None and end is None:
        return None, None
    from tidemark.store.event_log.log import Log

    source = definition.source
    reach = definition.window.max_extent
    event_times = list[int]()
    for arrival in Log(warehouse, source).read_timeline():
        # An arrival without an event time has neither.
        if arrival.min_event_time is not None and arrival.max_event_time is not None:
            event_times += (arrival.min_event_time, arrival.max_event_time)
    if not event_times:
        raise DataError(
            f"Source '{source.name}' has no events yet: use `tidemark ingest {source.name}`."
        )
    oldest = min(event_times)
    newest = max(event_times)
    first = begin
    if first is None:
        first = max(oldest - reach + 1, BEGINNING)
    last = end
    if last is None:
        last = newest + 1
    if last <= oldest - reach or first > newest or last <= first:
        raise DataError(
            f"No window of '{source.name}' is between {format_instant(first)} and "
            f"{format_instant(last)}: its events are "
            f"from {format_instant(oldest)} to {format_instant(newest)}. Choose another range."
        )
    return first, last
