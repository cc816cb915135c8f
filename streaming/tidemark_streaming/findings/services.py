"""The state of the home's processes, and of all streams, ingests and sinks of the warehouse."""

import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.ports import is_listening
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, SINK, Command
from tidemark_streaming.findings.reads import Reads
from tidemark_streaming.ingest.ingest_record import read_ingests
from tidemark_streaming.streams.stream_states import StreamState, read_streams, state_of

EVERY = 2.0
"""Seconds for which a result is reused."""

ENGINE = "engine"
BROKER = "kafka"
_NAMES = (ENGINE, "webserver", "daemon", BROKER)


@dataclass(frozen=True)
class IngestState:
    """The processes that ingest a source, and the error that needs manual action.

    Args:
        at_work: true if an ingest of the source runs.
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
    def is_up(self) -> bool | None:
        """True if an ingest runs, False if an ingest should run but does not, otherwise None."""
        if self.at_work:
            return True
        return None if self.following is None else False


@dataclass(frozen=True)
class Services:
    """The state of all processes and commands.

    Args:
        up: whether each process runs, by its name; includes a broker only if one was started.
        sinks: the commands `sink --follow` that run or should run, by asset.
        disk_free, disk_size: the free and the total bytes of the warehouse's disk.
    """

    up: Mapping[str, bool]
    disk_free: int
    disk_size: int
    streams: Mapping[str, StreamState] = field(default_factory=dict[str, StreamState])
    ingests: Mapping[str, IngestState] = field(default_factory=dict[str, IngestState])
    sinks: Mapping[str, StreamState] = field(default_factory=dict[str, StreamState])


class ServiceMonitor:
    """Reads the state of all services, and reuses it for `EVERY` seconds."""

    def __init__(self, settings: Settings, sources: Iterable[str] = ()) -> None:
        self._settings = settings
        self._sources = list(sources)
        self._seen: tuple[float, Services] | None = None

    def read(self, reads: Reads) -> Services:
        """Return a state that is at most a few seconds old."""
        read_at = time.monotonic()
        if self._seen is None or read_at - self._seen[0] > EVERY:
            self._seen = (read_at, self._read_services(reads))
        return self._seen[1]

    def _read_services(self, reads: Reads) -> Services:
        up = _find_running_processes(self._settings)
        free, size = _measure_disk(self._settings)
        services = Services(up, disk_free=free, disk_size=size)
        add_workers = partial(self._with_workers, services)
        return reads.attempt("workers", add_workers) or services

    def _with_workers(self, services: Services) -> Services:
        """Return the services with the workers that the warehouse's records name."""
        settings = self._settings
        commands = foreground.list_commands(self._settings)
        followed = {command.name: command for command in commands if command.kind == INGEST}
        ingests = dict[str, IngestState]()
        for name, ingest in read_ingests(settings, self._sources).items():
            ingests[name] = IngestState(
                at_work=ingest.at_work,
                following=followed.get(name),
                refused=ingest.refused,
                by_sensor=ingest.by_sensor,
            )
        sinks = dict[str, StreamState]()
        for command in commands:
            if command.kind == SINK:
                sinks[command.name] = state_of(command, engine=True)
        streams = read_streams(settings, commands, engine=services.up[ENGINE])
        return replace(services, streams=streams, ingests=ingests, sinks=sinks)


def _find_running_processes(settings: Settings) -> dict[str, bool]:
    up = {name: ManagedProcess(settings.home, name).find_running() is not None for name in _NAMES}
    if ManagedProcess(settings.home, BROKER).read_record() is None:
        del up[BROKER]
    up[ENGINE] = _is_engine_up(settings, up[ENGINE])
    return up


def _measure_disk(settings: Settings) -> tuple[int, int]:
    """Return the free and total bytes of the disk of the warehouse.

    If the warehouse is not on this machine, return the bytes of the home's disk.
    """
    folder = Path(settings.warehouse) if settings.warehouse.startswith("/") else settings.home
    usage = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists()))
    return usage.free, usage.total


def _is_engine_up(settings: Settings, started: bool) -> bool:
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
