"""The background processes of a home other than the engine.

They are the orchestrator's web interface and daemon, the live page, and the creation of the class
data archive while the machine is idle.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.launch import archive, jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import check_free
from tidemark.engine.process import summarize_output
from tidemark_streaming.home import orchestrator

_START_DEADLINE = 120.0
_LAUNCH = """
mutation($job: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $job}) {
    __typename
    ... on LaunchRunSuccess {run {runId}}
    ... on PythonError {message}
  }
}
"""
_HEALTH = "{instance {daemonHealth {allDaemonStatuses {daemonType required healthy}}}}"


def find_service(settings: Settings, name: str) -> ManagedProcess:
    """Return the process `webserver`, `daemon`, `watch`, `archive` or `kafka`, running or not."""
    return ManagedProcess(settings.home, name)


def webserver_url(settings: Settings) -> str:
    """Return the address of the web interface."""
    return f"http://127.0.0.1:{settings.webserver_port}"


def watch_url(settings: Settings) -> str:
    """Return the address of the live page, as this machine reaches it."""
    address = settings.watch_address
    if address.is_unspecified:
        return f"http://127.0.0.1:{settings.watch_port}"
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"http://{host}:{settings.watch_port}"


def start_orchestrator(settings: Settings, workspace: Path) -> None:
    """Start the web interface and the daemon, unless they run; `await_ready` waits for them."""
    process = find_service(settings, "webserver")
    port = (settings.webserver_port, "web interface", "webserver_port", "tidemark down")
    record = process.find_running_at(*port)
    if record is None:
        check_free(settings.webserver_port, "webserver_port")
    environment = {**os.environ, **orchestrator.prepare_folder(settings.home)}
    _create_databases(settings.home / "dagster", environment)
    if record is None:
        command = orchestrator.webserver_command(
            workspace, settings.webserver_port, settings.log_format
        )
        process.start(command, settings.webserver_port, environment, Path.cwd())
    daemon = find_service(settings, "daemon")
    if daemon.find_running() is None:
        daemon.start(
            orchestrator.daemon_command(workspace, settings.log_format), 0, environment, Path.cwd()
        )


def await_ready(settings: Settings, name: str) -> str:
    """Wait until a process responds, and return its address, which is empty for the daemon.

    For the daemon, wait until the web interface reports that it is healthy.
    """
    service_name, address, is_ready = {
        "webserver": (
            "web interface",
            webserver_url(settings),
            lambda: _request_json(settings) is not None,
        ),
        "daemon": ("daemon", "", lambda: _is_daemon_healthy(settings)),
        "watch": (
            "live page",
            watch_url(settings),
            lambda: _does_respond(f"{watch_url(settings)}/ready"),
        ),
    }[name]
    find_service(settings, name).await_ready(service_name, is_ready, _START_DEADLINE)
    return address


def launch_job(settings: Settings, location: str, job: str) -> str:
    """Launch a job of a code location, and return the ID of the run.

    The orchestrator must be running.
    """
    selector = {
        "repositoryLocationName": location,
        "repositoryName": "__repository__",
        "jobName": job,
    }
    answer = _request_json(settings, "/graphql", {"query": _LAUNCH, "variables": {"job": selector}})
    launched = {} if answer is None else (answer.get("data") or {}).get("launchRun") or {}
    if "run" not in launched:
        why = launched.get("message") or launched.get("__typename") or answer or "no answer"
        raise EngineError(
            f"Dagster did not launch the job '{job}' of '{location}': {str(why).rstrip('.')}. The "
            f"log file of Dagster's web server is {find_service(settings, 'webserver').log}."
        )
    return str(launched["run"]["runId"])


def start_watch(settings: Settings) -> None:
    """Start the live page and the metrics, unless they run; `await_ready` waits for them."""
    process = find_service(settings, "watch")
    port = (settings.watch_port, "live page", "watch_port", "tidemark down")
    if process.find_running_at(*port) is None:
        check_free(settings.watch_port, "watch_port")
        command = [sys.executable, "-m", "tidemark_streaming.monitor"]
        process.start(command, settings.watch_port, os.environ, Path.cwd())


def make_archive(settings: Settings) -> bool:
    """Start to create the engine's class data archive in the background, at low priority.

    Return False if the archive exists, or if the settings disable it. Call this function after an
    engine was stopped, when the machine is idle.
    """
    if not settings.engine_archive:
        return False
    java = find_java()
    if archive.archive_options(java, jars.class_path(java, settings.maven_repository)):
        return False
    process = find_service(settings, "archive")
    if process.find_running() is None:
        command = [
            "nice",
            "-n",
            "19",
            sys.executable,
            "-m",
            "tidemark_streaming.home.archive_warmup",
        ]
        process.start(command, 0, os.environ, Path.cwd())
    return True


def _create_databases(folder: Path, environment: Mapping[str, str]) -> None:
    """Create the orchestrator's databases once, before any process opens them.

    If two processes create them at the same time, one finds half of the tables, and fails.
    """
    marker = folder / "migrated"
    current = version("dagster")
    if marker.exists() and marker.read_text() == current:
        return
    process = subprocess.run(
        orchestrator.migration_command(),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        reason = summarize_output(process.stderr.splitlines())
        raise EngineError(
            f"Dagster's databases in {folder} can't be created: {reason}. Check "
            "dagster.yaml in that folder, and that the folder is writable."
        )
    marker.write_text(current)


def _is_daemon_healthy(settings: Settings) -> bool:
    answer = _request_json(settings, "/graphql", {"query": _HEALTH})
    if answer is None:
        return False
    daemons = answer["data"]["instance"]["daemonHealth"]["allDaemonStatuses"]
    return all(d["healthy"] for d in daemons if d["required"])


def _request_json(
    settings: Settings,
    path: str = "/server_info",
    payload: Any = None,  # noqa: ANN401
) -> Any | None:  # noqa: ANN401
    try:
        return json.loads(_request_body(webserver_url(settings) + path, payload))
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
        return None


def _does_respond(address: str) -> bool:
    try:
        _request_body(address)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
    return True


def _request_body(address: str, payload: Any = None) -> bytes:  # noqa: ANN401 (JSON)
    data = None if payload is None else json.dumps(payload).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()
