"""The orchestrator's web interface and daemon, as background processes of a home."""

import json
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine import Managed
from tidemark_streaming import orchestrator

START_DEADLINE = 120.0
_HEALTH = "{instance {daemonHealth {allDaemonStatuses {daemonType required healthy}}}}"


def service(settings: Settings, name: str) -> Managed:
    """The process `webserver` or `daemon`."""
    return Managed(settings.home, name)


def url(settings: Settings) -> str:
    """Where the web interface is."""
    return f"http://127.0.0.1:{settings.webserver_port}"


def start_webserver(settings: Settings, workspace: Path) -> str:
    """Start the web interface, unless it runs, and wait until it answers; its address.

    Args:
        workspace: the file that says what it loads.

    Raises:
        EngineError: its port is another program's, or it does not start.
    """
    process = service(settings, "webserver")
    record = process.running()
    if record is not None and record.port != settings.webserver_port:
        raise EngineError(
            f"The web interface of {settings.home} runs on port {record.port}, and webserver_port "
            f"(TIDEMARK_WEBSERVER_PORT) is {settings.webserver_port}: stop it with `tidemark "
            f"down`, or set webserver_port to {record.port}."
        )
    if record is None:
        _check_free(settings.webserver_port)
        command = orchestrator.webserver(workspace, settings.webserver_port)
        process.start(command, settings.webserver_port, _environment(settings), Path.cwd())
    _await("The web interface", process, lambda: _get(settings) is not None)
    return url(settings)


def start_daemon(settings: Settings, workspace: Path) -> None:
    """Start the daemon, unless it runs, and wait until the web interface calls it healthy.

    Raises:
        EngineError: it does not start.
    """
    process = service(settings, "daemon")
    if process.running() is None:
        command = orchestrator.daemon(workspace)
        process.start(command, 0, _environment(settings), Path.cwd())
    _await("The daemon", process, lambda: _healthy(settings))


def _environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, **orchestrator.prepare(settings.home)}


def _check_free(port: int) -> None:
    with socket.socket() as client:
        client.settimeout(1)
        if client.connect_ex(("127.0.0.1", port)) == 0:
            raise EngineError(
                f"Port {port} on 127.0.0.1 is in use by another program: stop that program, or "
                "set webserver_port (TIDEMARK_WEBSERVER_PORT) to a free port."
            )


def _await(what: str, process: Managed, ready: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not ready():
        if process.running() is None:
            raise EngineError(f"{what} ended while it started: {process.last_words()}")
        if time.monotonic() - begun > START_DEADLINE:
            raise EngineError(
                f"{what} was not ready in {START_DEADLINE:.0f} seconds: {process.last_words()}"
            )
        time.sleep(0.3)


def _healthy(settings: Settings) -> bool:
    answer = _get(settings, f"/graphql?query={urllib.parse.quote(_HEALTH)}")
    if answer is None:
        return False
    daemons = answer["data"]["instance"]["daemonHealth"]["allDaemonStatuses"]
    return all(d["healthy"] for d in daemons if d["required"])


def _get(settings: Settings, path: str = "/server_info") -> Any | None:  # noqa: ANN401
    try:
        with urllib.request.urlopen(url(settings) + path, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
        return None
