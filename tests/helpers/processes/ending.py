"""Exits of processes, and commands that end with an error."""

import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.engine.process import has_exited
from tidemark_streaming.base import foreground

GONE = "Records are gone."


def end_with_an_error(settings: Settings, kind: str, name: str, assets: Sequence[str] = ()) -> None:
    """Record a command that starts and fails with the message `GONE`."""
    with suppress(DataError), foreground.record_running(settings, kind, name, tuple(assets)):
        raise DataError(GONE)


def left(processes: Sequence[psutil.Process], patience: float = 60) -> list[psutil.Process]:
    """Return the processes that still run after at most `patience` seconds."""
    deadline = time.monotonic() + patience
    while (there := [p for p in processes if not has_exited(p)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return there
