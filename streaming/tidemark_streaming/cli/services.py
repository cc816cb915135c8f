"""`tidemark up`, `tidemark down`, `tidemark status`: processes and state of the platform."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, err, out, print_json, print_warning, step

if TYPE_CHECKING:
    from tidemark.engine.process import Record
    from tidemark_streaming.standing_faults import StandingFault

_HIDDEN = (
    "warning",
    "source",
    "as_of",
    "arrived_at",
    "dead_letters",
    "undeclared",
    "rows_waiting",
    "limited_by",
    "unfollowed",
)
"""Facts that only the JSON output has."""

NAMES = {
    "webserver": "Dagster web interface",
    "daemon": "Dagster daemon",
    "watch": "live page and metrics",
}
BROKER = {"kafka": "Kafka broker"}
"""The broker of `tidemark kafka up`, listed if it was started."""


def register(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up() -> None:
    """Start the engine, Dagster's web interface and daemon, and the live page with the metrics, on
    this machine only.

    The command returns when all are healthy. It leaves running services as they are.

    Example: `tidemark up`
    """
    from tidemark import engine
    from tidemark.base import extras
    from tidemark_streaming import orchestrator, services

    extras.require("dagster")
    settings = Settings()
    workspace = orchestrator.workspace(settings)
    if orchestrator.without_marts(settings):
        print_warning(
            "The marts are not available, because dbt is not installed: `pip install "
            "'tidemark[marts]'`."
        )
    with step("Spark engine") as work:
        engine.ensure(settings, work.tell)
        work.note = engine.status(settings).address
    services.start(settings, workspace)
    services.start_watch(settings)
    with step(NAMES["webserver"]) as work:
        work.note = services.await_webserver(settings)
    with step(NAMES["daemon"]):
        services.await_daemon(settings)
    with step(NAMES["watch"]) as work:
        work.note = services.await_watch(settings)
    out().print(
        f"\nTidemark is up: [bold]{services.url(settings)}[/], live page "
        f"[bold]{services.watch_url(settings)}[/]\n`tidemark status` shows the addresses, "
        "`tidemark down` stops everything."
    )


def down() -> None:
    """Stop everything that `tidemark up` started, and all streaming queries and lanes. Data stays.

    Example: `tidemark down`
    """
    from tidemark import engine
    from tidemark_streaming import services
    from tidemark_streaming.lane import home

    settings = Settings()
    running = [s for n in reversed(NAMES) if (s := services.service(settings, n)).running()]
    for process in running:
        with step(f"stop {NAMES[process.name]}"):
            process.stop()
    lanes = home.running_lanes(settings)
    for name in lanes:
        with step(f"stop lane {name}"):
            home.stop(settings, name)
    spark = engine.status(settings)
    if spark.pid is not None:
        with step("stop Spark engine"):
            engine.stop(settings)
        if services.make_archive(settings):
            err().print(
                "The archive of the engine's classes (270 MB) is built once, in the background, "
                "in about a minute. Engines then start faster."
            )
    elif not (running or lanes):
        err().print("Nothing is running.")


def status(json: Json = False) -> None:
    """Show services, the progress of each source and asset, and open problems.

    The command reads the tables without the engine, so it works if nothing is running. If tables
    lack commits or files, for example after a power cut, it lists only those. Windows in which
    Tidemark itself lost or duplicated events appear in red, with what to do.

    Example: `tidemark status --json`
    """
    settings = Settings()
    processes = _processes(settings)
    running = any(p["running"] for p in processes)
    _check_tables(settings)
    sources, assets = _sources(settings), _assets(settings)
    streams = _streams(settings) if processes[0]["running"] else []
    faults = _faults(settings)
    if json:
        told = [asdict(f) | {"first": iso(f.first)} for f in faults]
        print_json(
            {
                "processes": processes,
                "sources": sources,
                "assets": assets,
                "streams": streams,
                "faults": told,
            }
        )
        return
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
    for source in sources:
        if source["warning"] is not None:
            out().print(f"[bold yellow]{escape(source['warning'])}[/]", soft_wrap=True)
        if count := source["dead_letters"]:
            name, letters = source["name"], "dead letter" if count == 1 else "dead letters"
            out().print(
                f"[yellow]{count:,} {letters} of [bold]{name}[/] could not be decoded: `tidemark "
                f"dead-letters list {name}` shows why.[/]",
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
    from tidemark_streaming.glance import Waiting

    for asset in assets:
        if asset["limited_by"] is not None:
            waiting = Waiting(asset["behind"], asset["rows_waiting"], asset["limited_by"])
            out().print(f"[bold]{asset['asset']}[/]: {waiting}.")
        if (base := asset["unfollowed"]) is not None:
            name = asset["asset"]
            out().print(
                f"[bold]{name}[/] has not processed all runs of {base}: use `tidemark run {name}`.",
                soft_wrap=True,
            )
    for asset in streams:
        out().print(
            f"The stream of [bold]{asset}[/] is running; `tidemark stream {asset} --stop` stops it."
        )
    for fault in faults:
        out().print(f"[bold red]{escape(fault.sentence())}[/]", soft_wrap=True)
    if running:
        err().print(f"Log files are in {settings.home / 'logs'}.", soft_wrap=True)
    else:
        err().print("Nothing is running. `tidemark up` starts Tidemark.")


def _processes(settings: Settings) -> list[dict[str, Any]]:
    from tidemark import engine
    from tidemark_streaming import services
    from tidemark_streaming.lane import home

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
    for name, title in {**NAMES, **BROKER}.items():
        process = services.service(settings, name)
        record = process.running()
        if name in BROKER and process.recorded() is None:
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
    for name in home.running_lanes(settings):
        lane = engine.status(home.settings_of(settings, name))
        rows.append(
            {
                "name": f"lane {name}",
                "running": lane.answer is engine.Answer.READY,
                "address": lane.address,
                "pid": lane.pid,
                "log": str(lane.log),
            }
        )
    return rows


def _address(settings: Settings, name: str, record: "Record | None") -> str | None:
    from tidemark_streaming import services

    if name == "webserver":
        return services.url(settings)
    if name == "watch":
        return services.watch_url(settings)
    return f"127.0.0.1:{record.port}" if name in BROKER and record is not None else None


def _sources(settings: Settings) -> list[dict[str, Any]]:
    from tidemark_streaming import domains, future_watermark
    from tidemark_streaming.dead_letters import waiting
    from tidemark_streaming.glance import Glance

    glance = Glance(settings)
    instants = ("arrived_at", "watermark", "newest_event")
    inlets = domains.load(settings.domains).inlets
    found = [asdict(glance.source(name)) for name in inlets]
    return [
        {
            "name": (name := s.pop("source")),
            **{k: iso(v) if k in instants else v for k, v in s.items()},
            "dead_letters": waiting(glance, name),
            "warning": None
            if (ahead := future_watermark.find(glance, inlets[name].source)) is None
            else str(ahead),
            "undeclared": {
                field: last
                for field, last in glance.undeclared(name).items()
                if field not in inlets[name].source.fields
            },
        }
        for s in found
    ]


def _assets(settings: Settings) -> list[dict[str, Any]]:
    from tidemark_streaming import domains
    from tidemark_streaming.glance import Glance

    glance, rows = Glance(settings), list[dict[str, Any]]()
    transforms = domains.load(settings.domains).transforms.values()
    unfollowed = glance.unfollowed({t.name: t.follows for t in transforms if t.follows is not None})
    for t in transforms:
        asset = glance.asset(t.name, t.source.name, t.keys, t.allowed_lateness)
        waiting = glance.waiting(asset)
        told = {
            "behind": waiting.arrivals,
            "rows_waiting": waiting.rows,
            "limited_by": waiting.limited_by,
            # The base whose runs a roll-up has not followed.
            "unfollowed": t.follows if t.name in unfollowed else None,
        }
        rows.append({**asdict(asset), "watermark": iso(asset.watermark), **told})
    return rows


def _faults(settings: Settings) -> "list[StandingFault]":
    from tidemark_streaming import domains
    from tidemark_streaming.glance import Glance
    from tidemark_streaming.standing_faults import standing_fault

    glance = Glance(settings)
    found = [standing_fault(glance, t) for t in domains.load(settings.domains).transforms.values()]
    return [fault for fault in found if fault is not None]


def _streams(settings: Settings) -> list[str]:
    from tidemark_streaming import domains, queries

    return list(queries.running(settings, domains.load(settings.domains).transforms))


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


def _check_tables(settings: Settings) -> None:
    from tidemark.store import integrity
    from tidemark_streaming import domains

    known = domains.load(settings.domains)
    folder = f"{settings.warehouse}/{settings.database}"
    if found := integrity.check(folder, known.all_sources(), known.transforms.values()):
        raise integrity.DamageError(found)
