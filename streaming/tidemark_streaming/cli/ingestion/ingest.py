"""`tidemark ingest`: ingest new data into a source's event log."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.addresses import is_address
from tidemark.base.errors import DataError, DefinitionError, TidemarkError
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import format_seconds, message_console, print_warning
from tidemark_streaming.cli.context import (
    ArrivalsPerRun,
    Bulk,
    BytesPerRun,
    Home,
    RowsPerRun,
    SourceName,
)
from tidemark_streaming.cli.ingestion.arrivals import ingest_and_report
from tidemark_streaming.cli.ingestion.recording import (
    ArrivedFrom,
    ArrivedTo,
    Days,
    Recorded,
    RecordingOptions,
    Span,
    Speed,
    ingest_recording,
)
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.run.admission import Admission
    from tidemark.store.ledger import RunFacts
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.connector import Connector, Ingestion
    from tidemark_streaming.streams.direct import Direct


@with_json
def ingest_source(
    source: SourceName,
    bulk: Bulk = False,
    following: Annotated[
        bool, typer.Option("--follow", help="Continue with new data until Ctrl-C or SIGTERM.")
    ] = False,
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            metavar="ASSET",
            help="With --follow: run this asset on each commit, in this process. Repeatable.",
        ),
    ] = None,
    arrivals_per_run: ArrivalsPerRun = None,
    rows_per_run: RowsPerRun = None,
    bytes_per_run: BytesPerRun = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss",
            help="Continue past records that Kafka or the Delta table has already deleted. Records "
            "deleted later still stop the ingest.",
        ),
    ] = False,
    accept_change: Annotated[
        bool,
        typer.Option(
            "--allow-schema-change",
            help="Continue even if none of many rows can be decoded, or no event of an arrival has "
            "an event time.",
        ),
    ] = False,
    recorded: Recorded = False,
    days: Days = None,
    arrived_from: ArrivedFrom = None,
    arrived_to: ArrivedTo = None,
    speed: Speed = None,
    span: Span = None,
) -> Output:
    """Ingest a source's new data into its event log, exactly once.

    The command reads what is new in the source's landing folder, Kafka topics or Delta table, or
    with **--recorded** its recording. If it is killed, the next one resumes where the event log
    ends.

    Example: `tidemark ingest orders --follow`
    """
    from tidemark.run.admission import Admission

    admission = Admission(arrivals_per_run, rows_per_run, bytes_per_run)
    _check_options(following=following, bulk=bulk, run=run, admission=admission)
    recording = RecordingOptions(days, arrived_from, arrived_to, speed, span)
    if recorded:
        if following or accept_loss or accept_change:
            raise DefinitionError(
                "--recorded can't be used with --follow, --allow-data-loss and "
                "--allow-schema-change, which are for live data."
            )
        return ingest_recording(source, recording, bulk=bulk)
    if not recording.is_empty:
        raise DefinitionError(
            "--days, --arrived-from, --arrived-to, --speed and --span require --recorded: they "
            "choose a part of a recording, and its pace."
        )
    home = Home()
    if following:
        logs.begin_logging(home.settings, "ingest")
    ingestion = home.find_ingestion(source)
    landing = home.settings.landing_of(source)
    connector = ingestion.connector(landing)
    if accept_loss:
        connector = _accept_risk(connector, "loss")
    if accept_change:
        connector = _accept_risk(connector, "change")
    if ingestion.play is not None and not is_address(landing) and not Path(landing).is_dir():
        raise DataError(
            f"No data has landed for '{source}' yet: `tidemark ingest {source} --recorded` loads "
            "its recording."
        )
    if following:
        return _follow_source(home, ingestion, connector, run or [], admission)
    return _ingest_pending(home, ingestion, connector, bulk=bulk)


def _check_options(
    *, following: bool, bulk: bool, run: Sequence[str] | None, admission: "Admission"
) -> None:
    if run and not following:
        raise DefinitionError(
            "--run requires --follow. To run an asset once, use `tidemark run ASSET` after the "
            "ingest."
        )
    if bulk and following:
        raise DefinitionError(
            "--bulk can't be used with --follow, which already commits all pending arrivals "
            "together: omit --bulk."
        )
    if admission and not run:
        raise DefinitionError(
            "--max-arrivals, --rows-per-run and --bytes-per-run require --run ASSET, whose "
            "runs they limit."
        )


def _ingest_pending(
    home: Home, ingestion: "Ingestion", connector: "Connector", *, bulk: bool
) -> Output:
    """Ingest the pending data, and end."""
    from tidemark_streaming.derived import DerivedConnector
    from tidemark_streaming.ingest.ingest import fill_lookup_tables, ingest

    store = home.open_warehouse()
    fill_lookup_tables(store, ingestion)
    # Each commit of a derived source runs a query, so its arrivals share a commit.
    has_one_commit = bulk or isinstance(connector, DerivedConnector)
    batch = None if has_one_commit else 1
    commits = ingest(store, connector, batch=batch)
    return ingest_and_report(store, ingestion.source, commits, home.settings)


def _follow_source(
    home: Home,
    ingestion: "Ingestion",
    connector: "Connector",
    assets: Sequence[str],
    admission: "Admission",
) -> Output:
    """Ingest new data until the command is stopped, and run assets on each commit."""
    from tidemark_streaming.base import foreground
    from tidemark_streaming.base.outage import Outage
    from tidemark_streaming.ingest.ingest import fill_lookup_tables, follow_source

    source = ingestion.source
    facts_by_asset: dict[str, RunFacts] = {}

    def prepare(store: "Warehouse") -> "tuple[Warehouse, Direct | None]":
        fill_lookup_tables(store, ingestion)
        if not assets:
            return store, None
        return store, _run_on_commit(home, source.name, assets, facts_by_asset, admission)

    def describe_runs() -> str:
        return "".join(f"; {_describe_run(facts)}" for facts in facts_by_asset.values())

    outage = Outage(print_warning)
    store = outage.survive_loss(home.open_warehouse)
    try:
        store, on_commit = prepare(store)
    except TidemarkError as error:
        store, on_commit = outage.retry_attempt(error, lambda: prepare(home.open_warehouse()))
    outage.end_outage()
    commits = follow_source(
        store, connector, on_commit=on_commit, reopen=home.open_warehouse, on_progress=print_warning
    )
    with foreground.record_running(home.settings, foreground.INGEST, source.name, tuple(assets)):
        return ingest_and_report(
            store,
            source,
            commits,
            home.settings,
            following=True,
            describe_runs=describe_runs,
        )


def _run_on_commit(
    home: Home,
    source: str,
    assets: Sequence[str],
    facts_by_asset: "dict[str, RunFacts]",
    admission: "Admission",
) -> "Direct":
    """Return a function that runs the assets after each commit.

    Args:
        facts_by_asset: receives the facts of the newest run of each asset, by asset.
    """
    from tidemark_streaming.streams.direct import Direct, check_assets

    transforms = [home.find_asset(asset) for asset in dict.fromkeys(assets)]
    check_assets(home.settings, source, transforms)

    def on_run(facts: "RunFacts") -> None:
        facts_by_asset[facts.asset] = facts
        if logs.is_structured():
            logs.log_event("ran", **logs.of_run(asdict(facts)))
        elif not message_console().is_terminal:
            message_console().print(_describe_run(facts), soft_wrap=True)

    return Direct(transforms, home.open_warehouse, on_run, admission)


def _describe_run(facts: "RunFacts") -> str:
    return (
        f"{facts.asset} through arrival {facts.through_arrival:,}  windows {facts.windows:,}  "
        f"late {facts.late:,}  too late {facts.too_late:,}  {format_seconds(facts.seconds)}"
    )


def _accept_risk(connector: "Connector", risk: str) -> "Connector":
    """Return a copy of the connector that accepts data loss or unusable rows.

    Args:
        risk: `loss` to continue after records that were deleted before they were ingested, or
            `change` to continue even if none of many rows can be decoded or has an event time.

    Raises:
        DefinitionError: connectors of this class do not have the option.
    """
    from tidemark_streaming.delta import DeltaConnector
    from tidemark_streaming.files import FileConnector
    from tidemark_streaming.kafka import KafkaConnector

    option, kinds, elsewhere = {
        "loss": (
            "--allow-data-loss",
            (KafkaConnector, DeltaConnector),
            "neither from Kafka nor from a Delta table",
        ),
        "change": (
            "--allow-schema-change",
            (KafkaConnector, FileConnector, DeltaConnector),
            "from no Kafka topic, files, or Delta table",
        ),
    }[risk]
    if not isinstance(connector, kinds):
        raise DefinitionError(
            f"{option} can't be used for source '{connector.source.name}', which comes {elsewhere}."
        )
    return replace(connector, **{f"accept_{risk}": True})
