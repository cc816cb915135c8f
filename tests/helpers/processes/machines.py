"""Processes as on machines with their own names and homes, on one engine and warehouse."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tidemark.base.settings import Settings
from tidemark.engine.connect import engine_address

LEASE_SECONDS = 6
"""How long a machine that was killed keeps its work."""

_ON_MACHINE = f"""
import socket, sys
from tidemark.store.workers import hold

machine = sys.argv.pop(1)
socket.gethostname = lambda: machine
hold.LEASE_SECONDS, hold._RENEW_SECONDS = {LEASE_SECONDS}, 1.0
"""

COMMAND = """
from tidemark_streaming.cli import app
app()
"""
"""The program that runs a command of Tidemark."""

PAUSED_COMMAND = f"""
import signal
from types import SimpleNamespace
from tidemark.base import failpoint

failpoint.signal = SimpleNamespace(SIGKILL=signal.SIGSTOP)
{COMMAND}
"""
"""The program that runs a command of Tidemark, which a fail point pauses instead of killing it."""

READINGS, PER_MINUTE = "readings", "per_minute"
"""The source and the asset of the machines' domain."""

_CONNECTORS = """
from helpers.data import support
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector

SOURCE = support.READINGS
readings = Ingestion(
    source=SOURCE, connector=lambda folder: FileConnector(SOURCE, folder, format="json")
)
"""


@contextmanager
def readings_domain(folder: Path) -> Iterator[None]:
    """Let all commands of the context use a domain with one source and one asset.

    Args:
        folder: the folder in which the domain is written.
    """
    domain = f"machines_{uuid4().hex[:8]}"
    (folder / domain).mkdir()
    (folder / domain / "__init__.py").touch()
    (folder / domain / "connectors.py").write_text(_CONNECTORS)
    (folder / domain / "transforms.py").write_text(
        "from helpers.data.support import PER_MINUTE as per_minute"
    )
    (folder / domain / "sources.py").write_text("from helpers.data.support import READINGS")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{Path(__file__).parents[2]}")
        patch.setenv("TIDEMARK_DOMAINS", domain)
        yield


def land_reading(shared: Settings, minute: int, *sensors: str) -> None:
    """Write a file with a reading of each sensor into the landing folder."""
    folder = Path(shared.landing) / READINGS
    folder.mkdir(exist_ok=True)
    lines = list[str]()
    for sensor in sensors:
        time_text = f"2024-01-01T00:{minute:02}:00Z"
        reading = {"sensor": sensor, "value": 1.0, "price": "1.00", "ts": time_text}
        lines.append(f"{json.dumps(reading)}\n")
    partial = folder / f".{minute:02}"
    partial.write_text("".join(lines))
    partial.rename(folder / f"{minute:02}.json")


def await_pause(process: "subprocess.Popen[str]") -> None:
    """Wait until a process is paused."""
    deadline = time.monotonic() + 120
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def machine(
    shared: Settings,
    folder: Path,
    name: str,
    *arguments: str,
    program: str = COMMAND,
    variables: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program as on a machine that has its own name and home. Kill it at the end.

    Args:
        shared: the settings of the home whose engine and warehouse the machine uses.
        folder: the folder in which the home is created.
        variables: further variables of the environment.
    """
    environment = {
        **os.environ,
        "TIDEMARK_HOME": str(folder / name),
        "TIDEMARK_REMOTE": engine_address(shared),
        "TIDEMARK_WAREHOUSE": shared.warehouse,
        "TIDEMARK_LANDING": str(shared.landing),
        **(variables or {}),
    }
    with subprocess.Popen(
        [sys.executable, "-c", _ON_MACHINE + program, name, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
