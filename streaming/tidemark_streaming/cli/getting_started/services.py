"""`tidemark up`, `tidemark down`, `tidemark status`: processes and state of the platform."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, err, out, print_warning, step
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidemark.engine.process import Record
    from tidemark_streaming.home.domains import Domains
    from tidemark_streaming.snapshot.check_results import IntegrityFault
    from tidemark_streaming.snapshot.snapshot import AssetSnapshot, Snapshot

_HIDDEN = (
    "blocked",
    "warning",
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
"""The broker of `tidemark kafka up`, listed if it was started."""


def up() -> None:
    """Start the engine, Dagster's web interface and daemon, and the live page with the metrics, on
    this machine only.

    The command returns when all are healthy. It leaves running services as they are.

    Example: `tidemark up`
    """
    from tidemark import engine
    from tidemark.base import extras
    from tidemark_streaming.home import orchestrator, services

    extras.require("dagster")
    settings = Settings()
    workspace = orchestrator.workspace(settings)
    if orchestrator.without_marts(settings):
        print_warning(
            "The marts are not available, because dbt is not installed: `pip install "
            "'tidemark[marts]'`."
        )
    with step("Spark engine") as work:
        engine.ensure(settings, work.show)
        work.note = engine.status(settings).address
    services.start(settings, workspace)
    services.start_watch(settings)
    for name, title in _NAMES.items():
        with step(title) as work:
            work.note = services.await_ready(settings, name)
    out().print(
        f"\nTidemark is up: [bold]{services.url(settings)}[/], live page "
        f"[bold]{services.watch_url(settings)}[/]\n`tidemark status` shows the addresses, "
        "`tidemark down` stops everything."
    )


def down() -> None:
    """Stop everything that `tidemark up` started, and all streaming queries and
    pipelines of extras. Data stays.

    Example: `tidemark down`
    """
    from tidemark import engine
    from tidemark_streaming.base.extra import find_extras
    from tidemark_streaming.home import services

    settings = Settings()
    running = [s for n in reversed(_NAMES) if (s := services.service(settings, n)).running()]
    for process in running:
        with step(f"stop {_NAMES[process.name]}"):
            process.stop()
    pipelines = {
        f"{extra.name} {name}": own
        for extra in find_extras()
        for name, own in extra.engines(settings).items()
    }
    for name, own in pipelines.items():
        with step(f"stop {name}"):
            engine.stop(own)
    spark = engine.status(settings)
    if spark.pid is not None:
        with step("stop Spark engine"):
            engine.stop(settings)
        if services.make_archive(settings):
            err().print(
                "The archive of the engine's classes (270 MB) is built once, in the background, "
                "in about a minute. Engines then start faster."
            )
    elif not (running or pipelines):
        err().print("Nothing is running.")


@with_json
def status() -> Output:
    """Show services, the progress of each source and asset, and open problems.

    The command reads the tables without the engine, so it works if nothing is running. If tables
    lack commits or files, for example after a power cut, it lists only those. Sources whose ingest
    was refused, and windows in which Tidemark itself lost or duplicated events, appear in red, with
    what to do.

    Example: `tidemark status --json`
    """
    from tidemark.store.integrity import DamageError
    from tidemark_streaming.snapshot.check_results import find_integrity_fault

    home = Home()
    settings = home.settings
    processes = _processes(settings)
    if damage := home.find_damage():
        raise DamageError(damage)
    found = home.known
    snapshot = home.snapshot(*found.transforms.values())
    sources = _sources(settings, snapshot, found)
    progress = [*map(snapshot.asset, found.transforms.values())]
    assets = [asdict(asset) | {"watermark": iso(asset.watermark)} for asset in progress]
    faults = [find_integrity_fault(snapshot, t) for t in found.transforms.values()]
    faults = [fault for fault in faults if fault is not None]
    data = {
        "processes": processes,
        "sources": sources,
        "assets": assets,
        "streams": _streams(settings, engine=processes[0]["running"]),
        "faults": [asdict(f) | {"first": iso(f.first)} for f in faults],
    }
    return Output(data, lambda: _show_status(settings, data, progress, faults))


def _show_status(
    settings: Settings,
    data: "Mapping[str, list[Any]]",
    progress: "Iterable[AssetSnapshot]",
    faults: "Iterable[IntegrityFault]",
) -> None:
    processes, sources, assets = data["processes"], data["sources"], data["assets"]
    table = Table(title="processes", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("process", "state", "where"):
        table.add_column(name)
    for p in processes:
        state = "[green]running[/]" if p["running"] else "[red]not running[/]"
        table.add_row(p["name"], state, p["address"])
    out().print(table)
    for what, place in (("pages", "Spark's own pages"), ("event_log", "Spark's event log")):
        if processes[0][what]:
            out().print(f"{place}: {processes[0][what]}", soft_wrap=True)
    out().print(_table("sources", sources), _table("assets", assets))
    names = {asset["asset"] for asset in assets}
    for source in sources:
        if source["blocked"] is not None:
            out().print(
                f"[bold red]{source['name']} is blocked: {escape(source['blocked'])}[/]",
                soft_wrap=True,
            )
        if source["warning"] is not None:
            out().print(f"[bold yellow]{escape(source['warning'])}[/]", soft_wrap=True)
        if source["silent_since"] is not None:
            out().print(
                f"[bold]{source['name']}[/] has been silent since {source['silent_since']}; the "
                f"newest heartbeat is of {source['clock']}.",
                soft_wrap=True,
            )
        if count := source["dead_letters"]:
            name, rows = source["name"], "row is" if count == 1 else "rows are"
            out().print(
                f"[yellow]{count:,} {rows} not in the event log of [bold]{name}[/]: `tidemark "
                f"dead-letters list {name}` shows why.[/]",
                soft_wrap=True,
            )
        if any(source["lag_arrivals"].values()):
            name = source["name"]
            waiting = " and ".join(
                f"{format_count(n, 'run' if base in names else 'arrival')} of {base}"
                for base, n in source["lag_arrivals"].items()
                if n
            )
            out().print(
                f"[bold]{name}[/] has not taken {waiting} yet: `tidemark ingest {name}`.",
                soft_wrap=True,
            )
        if count := source["unjoined"]:
            name = source["name"]
            out().print(
                f"{format_count(count, 'row')} of its bases "
                f"{'takes' if count == 1 else 'take'} no part in [bold]{name}[/]: `tidemark "
                f"dead-letters list {name}` shows why.",
                soft_wrap=True,
            )
        if unknown := source["undeclared"]:
            fields = ", ".join(f"{name} (arrival {last})" for name, last in unknown.items())
            out().print(
                f"[yellow][bold]{source['name']}[/] does not declare some of the received fields, "
                "so they are ignored (with the newest arrival that has them): "
                f"{escape(fields)}.[/]",
                soft_wrap=True,
            )
    for asset in progress:
        name, base = asset.asset, asset.unfollowed
        if asset.limited_by is not None:
            out().print(f"[bold]{name}[/]: {asset.waiting}.")
        if base is not None:
            out().print(
                f"[bold]{name}[/] has not processed all runs of {base}: use `tidemark run {name}`.",
                soft_wrap=True,
            )
    for stream in data["streams"]:
        out().print(_describe_stream(**stream), soft_wrap=True)
    for fault in faults:
        out().print(f"[bold red]{escape(str(fault))}[/]", soft_wrap=True)
    if any(p["running"] for p in processes):
        err().print(f"Log files are in {settings.home / 'logs'}.", soft_wrap=True)
    else:
        err().print("Nothing is running. `tidemark up` starts Tidemark.")


def _streams(settings: Settings, *, engine: bool) -> list[dict[str, Any]]:
    """Return the streams that run or should run, with their states."""
    from tidemark_streaming.base import foreground
    from tidemark_streaming.streams import queries
    from tidemark_streaming.streams.stream_states import UNKNOWN, read_streams
    from tidemark_streaming.streams.supervisor import RUNNING

    found = read_streams(settings, foreground.commands(settings), engine=engine)
    # Without a supervisor, only the engine knows whether a stream runs.
    unknown = [asset for asset, stream in found.items() if stream.state == UNKNOWN]
    running = queries.running(settings, unknown) if unknown else {}
    return [
        {
            "asset": asset,
            "state": RUNNING if asset in running else stream.state,
            "failures": stream.failures,
            "error": stream.error,
            "command": stream.kept_by,
        }
        for asset, stream in found.items()
    ]


def _describe_stream(
    asset: str, state: str, failures: int, error: str | None, command: str | None
) -> str:
    """Return a sentence about the state of a stream, with the next step if it does not run."""
    color, does = {
        "running": ("", f"is running; `tidemark stream {asset} --stop` stops it"),
        "starting": ("", "is starting"),
        "waiting": ("yellow", "is not running; it will be started again"),
        "given up": (
            "red",
            "was given up: correct the cause, then start it with `tidemark stream "
            f"{asset} --detach`",
        ),
        "ended": (
            "red",
            f"has ended with `tidemark {command}`: start that again, or forget it with `tidemark "
            f"stream {asset} --stop`",
        ),
        "engine down": ("yellow", "should run, but the engine does not: `tidemark up` starts it"),
        "unknown": (
            "yellow",
            "should run, and no supervisor restarts it: `tidemark up` starts one",
        ),
    }[state]
    text = f"The stream of [bold]{asset}[/] {does}."
    if failures:
        text += f" It has failed {format_count(failures, 'time')} in a row."
    if error is not None:
        text += f" Its error: {escape(error)}"
    return f"[{color}]{text}[/]" if color else text


def _processes(settings: Settings) -> list[dict[str, Any]]:
    from tidemark import engine
    from tidemark_streaming.base.extra import find_extras
    from tidemark_streaming.home import services

    spark = engine.status(settings)
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
        process = services.service(settings, name)
        record = process.running()
        if name in _BROKER and process.read_record() is None:
            continue
        rows.append(
            {
                "name": title,
                "running": record is not None,
                "address": _address(settings, name, record),
                "pid": None if record is None else record.pid,
                "log": str(process.log),
            }
        )
    for extra in find_extras():
        for name, own in extra.engines(settings).items():
            spark = engine.status(own)
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


def _address(settings: Settings, name: str, record: "Record | None") -> str | None:
    from tidemark_streaming.home import services

    if name == "webserver":
        return services.url(settings)
    if name == "watch":
        return services.watch_url(settings)
    return f"127.0.0.1:{record.port}" if name in _BROKER and record is not None else None


def _sources(settings: Settings, snapshot: "Snapshot", found: "Domains") -> list[dict[str, Any]]:
    from tidemark_streaming.ingest import future_watermark
    from tidemark_streaming.ingest.ingest_files import blocking_error

    instants = ("arrived_at", "clock", "silent_since", "watermark", "newest_event")
    rows = list[dict[str, Any]]()
    for ingestion in found.ingestions.values():
        source = asdict(snapshot.source(ingestion.source))
        ahead = future_watermark.find(snapshot, ingestion.source)
        readable = {k: iso(v) if k in instants else v for k, v in source.items()}
        notes = {
            "blocked": blocking_error(settings, ingestion.source.name),
            "warning": None if ahead is None else str(ahead),
        }
        rows.append(readable | notes)
    return rows


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in rows[0] if rows else ():
        if name not in _HIDDEN:
            table.add_column(name.replace("_", " "), no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(v) for k, v in row.items() if k not in _HIDDEN))
    return table


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return NONE if value is None else str(value).replace("T", " ").removesuffix(":00Z")
