"""`tidemark up`, `tidemark down`, `tidemark status`: the platform's processes and where it is."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from tidemark.instant import iso
from tidemark.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, emit, err, out, step

if TYPE_CHECKING:
    from tidemark.engine import Managed

NAMES = {"webserver": "Dagster web interface", "daemon": "Dagster daemon"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up() -> None:
    """Start the engine, Dagster's web interface and its daemon, on this machine only.

    Returns when all are healthy. What runs already is left as it is.

    Example: `tidemark up`
    """
    from tidemark import engine
    from tidemark_streaming import services

    settings = Settings()
    with step("Spark engine") as work:
        engine.ensure(settings, work.tell)
        work.note = engine.status(settings).address
    with step(NAMES["webserver"]) as work:
        work.note = services.start_webserver(settings)
    with step(NAMES["daemon"]):
        services.start_daemon(settings)
    out().print(
        f"\nTidemark is up: [bold]{services.url(settings)}[/]\n"
        "`tidemark status` shows where everything is, `tidemark down` stops it."
    )


def down() -> None:
    """Stop all that `tidemark up` started, and the streams with it. Data stays.

    Example: `tidemark down`
    """
    from tidemark import engine
    from tidemark_streaming import services

    settings = Settings()
    stopped = [NAMES[n] for n in ("daemon", "webserver") if _stop(services.service(settings, n))]
    with step("stop Spark engine"):
        if engine.stop(settings):
            stopped.append("Spark engine")
    err().print("Nothing was running." if not stopped else f"Stopped: {', '.join(stopped)}.")


def status(json: Json = False) -> None:
    """Show what runs, how far each source and asset is, and what is left to do.

    It reads the tables without the engine, and works when nothing runs.

    Example: `tidemark status --json`
    """
    settings = Settings()
    found = {
        "processes": _processes(settings),
        "sources": _sources(settings),
        "assets": _assets(settings),
    }
    if json:
        emit(found)
        return
    processes = Table(title="processes", title_justify="left")
    for name in ("process", "state", "where", "log"):
        processes.add_column(name)
    for p in found["processes"]:
        state = "[green]running[/]" if p["running"] else "[red]not running[/]"
        processes.add_row(p["name"], state, p["address"], p["log"])
    out().print(processes)
    _print("sources", found["sources"])
    _print("assets", found["assets"])
    if not any(p["running"] for p in found["processes"]):
        err().print("Nothing is running: `tidemark up` starts it.")


def _processes(settings: Settings) -> list[dict[str, Any]]:
    from tidemark import engine
    from tidemark_streaming import services

    spark = engine.status(settings)
    rows: list[dict[str, Any]] = [
        {
            "name": "Spark engine",
            "running": spark.answer is engine.Answer.READY,
            "address": spark.address,
            "pid": spark.pid,
            "log": None if spark.log is None else str(spark.log),
        }
    ]
    for name, title in NAMES.items():
        process = services.service(settings, name)
        record = process.running()
        rows.append(
            {
                "name": title,
                "running": record is not None,
                "address": services.url(settings) if name == "webserver" else None,
                "pid": None if record is None else record.pid,
                "log": str(process.log),
            }
        )
    return rows


def _sources(settings: Settings) -> list[dict[str, Any]]:
    from tidemark_streaming import domains
    from tidemark_streaming.glance import Glance

    glance = Glance(settings)
    instants = ("arrived_at", "watermark", "newest_event")
    found = [glance.source(name) for name in domains.load(settings.domains).inlets]
    return [{k: iso(v) if k in instants else v for k, v in asdict(s).items()} for s in found]


def _assets(settings: Settings) -> list[dict[str, Any]]:
    from tidemark_streaming import domains
    from tidemark_streaming.glance import Glance

    glance, rows = Glance(settings), []
    for t in domains.load(settings.domains).transforms.values():
        asset = glance.asset(t.name, t.source.name, t.keys, t.allowed_lateness)
        behind = glance.source(t.source.name).arrivals - 1 - asset.as_of
        rows.append({**asdict(asset), "watermark": iso(asset.watermark), "arrivals_behind": behind})
    return rows


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "))
    for row in rows:
        values = (f"{v:,}" if isinstance(v, int) else v for v in row.values())
        table.add_row(*(NONE if v is None else v for v in values))
    out().print(table)


def _stop(process: "Managed") -> bool:
    with step(f"stop {NAMES[process.name]}"):
        return process.stop()
