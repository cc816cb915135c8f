"""Which processes of the home run, and which streams, as files and ports tell."""

import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine import Managed
from tidemark.engine.connect import listening
from tidemark_streaming import noted, wishes
from tidemark_streaming.supervisor import RUNNING

EVERY = 2.0
"""Seconds for which it holds what was seen."""

ENGINE, BROKER = "engine", "kafka"
NAMES = (ENGINE, "webserver", "daemon", BROKER)


@dataclass(frozen=True)
class StreamState:
    """A stream that should run.

    Args:
        state: as the supervisor saw it last: `running`, `waiting`, `starting`, `given up`;
            `unknown` where no supervisor looks, and `engine down` where it can't run.
        failures: how often in a row it ended or could not be started.
    """

    state: str
    failures: int = 0
    error: str | None = None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state == RUNNING


@dataclass(frozen=True)
class Services:
    """What runs.

    Args:
        up: by process, whether it runs; the broker only where one was started.
        streams: by asset, those that should run.
        disk_free, disk_size: bytes of the disk that holds the home.
    """

    up: Mapping[str, bool]
    streams: Mapping[str, StreamState]
    disk_free: int
    disk_size: int


class Look:
    """Looks at them, now and then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: tuple[float, Services] | None = None

    def look(self) -> Services:
        """What runs, some seconds ago at most."""
        now = time.monotonic()
        if self._seen is None or now - self._seen[0] > EVERY:
            self._seen = (now, _services(self._settings))
        return self._seen[1]


def _services(settings: Settings) -> Services:
    up = {name: Managed(settings.home, name).running() is not None for name in NAMES}
    if Managed(settings.home, BROKER).recorded() is None:
        del up[BROKER]
    up[ENGINE] = _engine(settings, up[ENGINE])
    seen = noted.noted(settings, time.time_ns() // 1000)
    streams = dict[str, StreamState]()
    for asset, wish in wishes.all_of(settings).items():
        stream = seen.get(asset)
        if not up[ENGINE]:
            streams[asset] = StreamState("engine down")
        elif stream is None or stream.since != wish.since:
            streams[asset] = StreamState("unknown")
        else:
            streams[asset] = StreamState(stream.state, stream.failures, stream.error)
    place = Path(settings.warehouse) if settings.warehouse.startswith("/") else settings.home
    there = next(p for p in (place, *place.parents) if p.exists())
    disk = shutil.disk_usage(there)
    return Services(up, streams, disk.free, disk.total)


def _engine(settings: Settings, started: bool) -> bool:
    """Whether somebody listens where the engine is: it is not asked anything."""
    if settings.remote is None:
        return started and listening(settings.engine_port)
    host, _, port = settings.remote.removeprefix("sc://").partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host or port, int(port) if host else 15002), timeout=0.5):
            return True
    except OSError:
        return False
