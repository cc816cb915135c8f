"""`tidemark up`, `tidemark down`, `tidemark status`: processes and state of the platform."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    NONE,
    message_console,
    print_warning,
    report_step,
    result_console,
)
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tidemark.engine.process import Record
    from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
    from tidemark_streaming.streams.stream_states import StreamState

_HIDDEN = (
    "source",
    "as_of",
    "arrived_at",
    "clock",
    "silent_since",
    "dead_letters",
    "lag_arrivals",
    "unjoined",
    "undeclared",
    "rows_waiting",
    "limited_by",
    "unfollowed",
)
"""Fields of the JSON output that are not columns of the printed tables."""

_NAMES = {
    "webserver": "Dagster web interface",
    "daemon": "Dagster daemon",
    "watch": "live page and metrics",
}
_BROKER = {"kafka": "Kafka broker"}
"""The broker of `tidemark dev kafka up`, listed if it was started."""


def start_platform() -> None:
    """Start the engine, Dagster's web interface and daemon, and the live page with the metrics, on
    this machine only.

    The command returns when all are healthy. It leaves running services as they are.

    Example: `tidemark up`
    """
    from tidemark import engine
    from tidemark.base import extras
    from tidemark_streaming.home import orchestrator, services

    extras.require_extra("dagster")
    settings = Settings()
    workspace = orchestrator.write_workspace(settings)
    if orchestrator.without_marts(settings):
        print_warning(
            "The marts are not available, because dbt is not installed: `pip install "
            "'tidemark[marts]'`."
        )
    with report_step("Spark engine") as work:
        engine.ensure_engine(settings, work.show_activity)
        work.note = engine.read_status(settings).address
    services.start_orchestrator(settings, workspace)
    services.start_watch(settings)
    for name, title in _NAMES.items():
        with report_step(title) as work:
            work.note = services.await_ready(settings, name)
    result_console().print(
        f"\nTidemark is up: [bold]{services.webserver_url(settings)}[/], live page "
        f"[bold]{services.watch_url(settings)}[/]\n`tidemark status` shows the addresses, "
        "`tidemark down` stops everything."
    )


def stop_platform() -> None:
    """Stop everything that `tidemark up` started, and all streaming queries and
    pipelines of extras. Data stays.

    Example: `tidemark down`
    """
    from tidemark import engine
    from tidemark_streaming.base.extra import find_extras
    from tidemark_streaming.home import services

    settings = Settings()
    all_services = [services.find_service(settings, name) for name in reversed(_NAMES)]
    running = [service for service in all_services if service.find_running()]
    for process in running:
        with report_step(f"stop {_NAMES[process.name]}"):
            process.stop()
    pipelines = dict[str, Settings]()
    for extra in find_extras():
        for name, engine_settings in extra.running_engines(settings).items():
            pipelines[f"{extra.name} {name}"] = engine_settings
    for name, engine_settings in pipelines.items():
        with report_step(f"stop {name}"):
            engine.stop_engine(engine_settings)
    spark = engine.read_status(settings)
    if spark.pid is not None:
        with report_step("stop Spark engine"):
            engine.stop_engine(settings)
        if services.make_archive(settings):
            message_console().print(
                "The archive of the engine's classes (270 MB) is built once, in the background, "
                "in about a minute. Engines then start faster."
            )
    elif not (running or pipelines):
        message_console().print("Nothing is running.")


@with_json
def show_status() -> Output:
    """Show services, the progress of each source and asset, and what needs attention.

    The command reads the tables without the engine, so it works if nothing is running. If a module
    of the project can't be loaded, or a table can't be read, it shows all the rest. Each finding
    has its cause and the command that settles it. The live page, the metrics, the alerts and
    Dagster's check `no_findings` show the same findings. The exit code is 0 also with findings.

    Example: `tidemark status --json`
    """
    from tidemark_streaming.findings.home_state import BROKERS_SECONDS, HomeReader
    from tidemark_streaming.findings.listing import list_findings

    settings = Settings()
    processes = _list_processes(settings)
    state = HomeReader(settings, wait_seconds=BROKERS_SECONDS).read()
    assets = [asset.snapshot for asset in state.assets.values()]
    data = {
        "processes": processes,
        "sources": [_source_row(source.snapshot) for source in state.sources.values()],
        "assets": [
            asdict(asset) | {"watermark": format_instant(asset.watermark)} for asset in assets
        ],
        "streams": _list_streams(settings, state.services.streams),
        "findings": [finding.to_json() for finding in list_findings(state)],
    }
    return Output(data, lambda: _print_status(settings, data, assets))


def _print_status(
    settings: Settings, data: "Mapping[str, list[Any]]", progress: "Iterable[AssetSnapshot]"
) -> None:
    processes = data["processes"]
    _show_processes(processes)
    result_console().print(
        _make_table("sources", data["sources"]), _make_table("assets", data["assets"])
    )
    assets = {asset["asset"] for asset in data["assets"]}
    for source in data["sources"]:
        _show_source_notes(source, assets)
    for asset in progress:
        _show_asset_notes(asset)
    for stream in data["streams"]:
        if stream["state"] in _STREAM_STATES:
            activity = _STREAM_STATES[stream["state"]].format(asset=stream["asset"])
            _show_note(f"The stream of [bold]{stream['asset']}[/] {activity}.")
    _show_findings(data["findings"])
    if any(process["running"] for process in processes):
        message_console().print(f"Log files are in {settings.home / 'logs'}.", soft_wrap=True)
    else:
        message_console().print("Nothing is running. `tidemark up` starts Tidemark.")


def _show_note(text: str) -> None:
    result_console().print(text, soft_wrap=True)


def _show_processes(processes: "Sequence[Mapping[str, Any]]") -> None:
    table = Table(title="processes", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("process", "state", "where"):
        table.add_column(name)
    for process in processes:
        state = "[green]running[/]" if process["running"] else "[red]not running[/]"
        table.add_row(process["name"], state, process["address"])
    result_console().print(table)
    spark = processes[0]
    if spark["pages"]:
        _show_note(f"Spark's own pages: {spark['pages']}")
    if spark["event_log"]:
        _show_note(f"Spark's event log: {spark['event_log']}")


def _show_source_notes(source: "Mapping[str, Any]", assets: "Collection[str]") -> None:
    """Print how far a source is behind, if it is.

    Args:
        assets: the names of all assets.
    """
    name = source["name"]
    if source["silent_since"] is not None:
        _show_note(
            f"[bold]{name}[/] has been silent since {source['silent_since']}; the newest heartbeat "
            f"is of {source['clock']}."
        )
    waiting: list[str] = []
    for base, count in source["lag_arrivals"].items():
        if count:
            unit = "run" if base in assets else "arrival"
            waiting.append(f"{format_count(count, unit)} of {base}")
    if waiting:
        _show_note(
            f"[bold]{name}[/] has not taken {' and '.join(waiting)} yet: `tidemark ingest {name}`."
        )
    unjoined = source["unjoined"]
    if unjoined:
        verb = "take"
        if unjoined == 1:
            verb = "takes"
        _show_note(
            f"{format_count(unjoined, 'row')} of its bases {verb} no part in [bold]{name}[/]: "
            f"`tidemark dead-letters list {name}` shows why."
        )


def _show_asset_notes(asset: "AssetSnapshot") -> None:
    """Print what an asset has not processed, if anything."""
    name = asset.asset
    if asset.limited_by is not None:
        result_console().print(f"[bold]{name}[/]: {asset.waiting_text}.")
    if asset.unfollowed is not None:
        _show_note(
            f"[bold]{name}[/] has not processed all runs of {asset.unfollowed}: use `tidemark run "
            f"{name}`."
        )


_STREAM_STATES = {
    "running": "is running; `tidemark stream {asset} --stop` stops it",
    "starting": "is starting",
}
"""What a stream does in each state in which it needs no attention."""


def _show_findings(findings: "Iterable[Mapping[str, Any]]") -> None:
    """Print what needs attention, errors first."""
    for number, finding in enumerate(findings):
        if number == 0:
            result_console().print("\n[bold]what needs attention[/]")
        style = "bold red" if finding["level"] == "error" else "yellow"
        message = escape(f"{finding['cause']} {finding['remedy']}")
        result_console().print(f"[{style}]{message}[/]", soft_wrap=True)


def _list_streams(settings: Settings, states: "Mapping[str, StreamState]") -> list[dict[str, Any]]:
    """Return the streams that run or should run, with their states."""
    from tidemark_streaming.streams import queries
    from tidemark_streaming.streams.stream_states import UNKNOWN
    from tidemark_streaming.streams.supervisor import RUNNING

    # Without a supervisor, only the engine knows whether a stream runs.
    unknown = [asset for asset, stream in states.items() if stream.state == UNKNOWN]
    running = set[str]()
    if unknown:
        running.update(queries.find_running(settings, unknown))
    streams = list[dict[str, Any]]()
    for asset, stream in states.items():
        state = stream.state
        if asset in running:
            state = RUNNING
        streams.append(
            {
                "asset": asset,
                "state": state,
                "failures": stream.failures,
                "error": stream.error,
                "command": stream.kept_by,
            }
        )
    return streams


def _list_processes(settings: Settings) -> list[dict[str, Any]]:
    from tidemark import engine
    from tidemark_streaming.base.extra import find_extras
    from tidemark_streaming.home import services

    spark = engine.read_status(settings)
    rows: list[dict[str, Any]] = [
        {
            "name": "Spark engine",
            "running": spark.answer is engine.Answer.READY,
            "address": spark.address,
            "pid": spark.pid,
            "log": None if spark.log is None else str(spark.log),
            "pages": spark.pages,
            "event_log": None if spark.event_log is None else str(spark.event_log),
        }
    ]
    for name, title in {**_NAMES, **_BROKER}.items():
        process = services.find_service(settings, name)
        record = process.find_running()
        if name in _BROKER and process.read_record() is None:
            continue
        rows.append(
            {
                "name": title,
                "running": record is not None,
                "address": _find_address(settings, name, record),
                "pid": None if record is None else record.pid,
                "log": str(process.log),
            }
        )
    for extra in find_extras():
        for name, engine_settings in extra.running_engines(settings).items():
            spark = engine.read_status(engine_settings)
            rows.append(
                {
                    "name": f"{extra.name} {name}",
                    "running": spark.answer is engine.Answer.READY,
                    "address": spark.address,
                    "pid": spark.pid,
                    "log": str(spark.log),
                }
            )
    return rows


def _find_address(settings: Settings, name: str, record: "Record | None") -> str | None:
    from tidemark_streaming.home import services

    if name == "webserver":
        return services.webserver_url(settings)
    if name == "watch":
        return services.watch_url(settings)
    if name in _BROKER and record is not None:
        return f"127.0.0.1:{record.port}"
    return None


def _source_row(source: "SourceSnapshot") -> dict[str, Any]:
    """Return the progress of a source for JSON and for the printed table."""
    instants = ("arrived_at", "clock", "silent_since", "watermark", "newest_event")
    row = asdict(source)
    for name in instants:
        row[name] = format_instant(row[name])
    return row


def _make_table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    if not rows:
        return table
    shown = [name for name in rows[0] if name not in _HIDDEN]
    for name in shown:
        table.add_column(name.replace("_", " "), no_wrap=True)
    for row in rows:
        cells = [_format_cell(row[name]) for name in shown]
        table.add_row(*cells)
    return table


def _format_cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return NONE
    return str(value).replace("T", " ").removesuffix(":00Z")
