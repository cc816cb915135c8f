"""The state of the home's processes, streams, ingests and sinks, from files, locks and ports."""

import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.ports import is_listening
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, SINK, Command
from tidemark_streaming.ingest import ingest_files
from tidemark_streaming.ingest.ingest_files import blocking_error, is_ingesting
from tidemark_streaming.streams.stream_states import StreamState, read_streams, state_of

EVERY = 2.0
"""Seconds for which a result is reused."""

ENGINE, BROKER = "engine", "kafka"
_NAMES = (ENGINE, "webserver", "daemon", BROKER)


@dataclass(frozen=True)
class IngestState:
    """The ingest of a source.

    Args:
        at_work: true if an ingest of the source runs on this machine.
        following: the command `ingest --follow` that should run, even if it does not run now; None
            if there is none.
        refused: the error of the newest ingest if it needs manual action, otherwise None.
        by_sensor: true if a Dagster sensor polls the source.
    """

    at_work: bool = False
    following: Command | None = None
    refused: str | None = None
    by_sensor: bool = False

    @property
    def up(self) -> bool | None:
        """True if an ingest runs, False if an ingest should run but does not, otherwise None."""
        return True if self.at_work else None if self.following is None else False


@dataclass(frozen=True)
class Services:
    """The state of all processes and commands.

    Args:
        up: whether each process runs, by its name; includes a broker only if one was started.
        sinks: the commands `sink --follow` that run or should run, by asset.
        disk_free, disk_size: the free and the total bytes of the warehouse's disk.
    """

    up: Mapping[str, bool]
    streams: Mapping[str, StreamState]
    ingests: Mapping[str, IngestState]
    sinks: Mapping[str, StreamState]
    disk_free: int
    disk_size: int


class ServiceMonitor:
    """Reads the state of all services, and reuses it for `EVERY` seconds."""

    def __init__(self, settings: Settings, sources: Iterable[str] = ()) -> None:
        self._settings, self._sources = settings, [*sources]
        self._seen: tuple[float, Services] | None = None

    def read(self) -> Services:
        """Return a state that is at most a few seconds old."""
        now = time.monotonic()
        if self._seen is None or now - self._seen[0] > EVERY:
            self._seen = (now, self._read())
        return self._seen[1]

    def _read(self) -> Services:
        settings = self._settings
        up, found = _processes(settings), foreground.commands(settings)
        of = {(c.kind, c.name): c for c in found}
        free, size = _disk(settings)
        return Services(
            up=up,
            streams=read_streams(settings, found, engine=up[ENGINE]),
            ingests={
                name: IngestState(
                    is_ingesting(settings, name),
                    of.get((INGEST, name)),
                    blocking_error(settings, name),
                    by_sensor=ingest_files.is_polled(settings, name, time.time()),
                )
                for name in self._sources
            },
            sinks={c.name: state_of(c, engine=True) for c in found if c.kind == SINK},
            disk_free=free,
            disk_size=size,
        )


def _processes(settings: Settings) -> dict[str, bool]:
    up = {name: ManagedProcess(settings.home, name).running() is not None for name in _NAMES}
    if ManagedProcess(settings.home, BROKER).read_record() is None:
        del up[BROKER]
    up[ENGINE] = _engine(settings, up[ENGINE])
    return up


def _disk(settings: Settings) -> tuple[int, int]:
    """Return the free and total bytes of the disk of the warehouse.

    If the warehouse is not on this machine, return the bytes of the home's disk.
    """
    place = Path(settings.warehouse) if settings.warehouse.startswith("/") else settings.home
    found = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists()))
    return found.free, found.total


def _engine(settings: Settings, started: bool) -> bool:
    """Return whether a server listens at the engine's address, without querying it.

    Args:
        started: true if the home's local engine process runs. A remote engine has no such process,
            so `started` does not matter for it.
    """
    if settings.remote is None:
        return started and is_listening(settings.engine_port)
    host, _, port = settings.remote.removeprefix("sc://").partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host or port, int(port) if host else 15002), timeout=0.5):
            return True
    except OSError:
        return False
