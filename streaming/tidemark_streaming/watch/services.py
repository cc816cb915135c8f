"""Which processes of the home run, and which streams, ingests, ways out and lanes, as files, locks
and ports tell."""

import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.ports import is_listening
from tidemark_streaming import foreground, noted, polls, wishes
from tidemark_streaming.foreground import EMIT, INGEST, LANE, STREAM, Command
from tidemark_streaming.lane import home
from tidemark_streaming.sole import at_work
from tidemark_streaming.standstill import refusal
from tidemark_streaming.supervisor import RUNNING

EVERY = 2.0
"""Seconds for which it holds what was seen."""

ENGINE, BROKER = "engine", "kafka"
NAMES = (ENGINE, "webserver", "daemon", BROKER)


@dataclass(frozen=True)
class StreamState:
    """A stream that should run.

    Args:
        state: of a detached one as the supervisor saw it last: `running`, `waiting`, `starting`,
            `given up`; `unknown` where no supervisor looks, and `engine down` where it can't run.
            Of one that a command keeps: `running`, `waiting`, or `ended` though nobody ended it.
        failures: how often in a row it ended or could not be started.
        restarts: how often it was started again; None where nobody knows.
        kept_by: the command that keeps it, `stream` or `ingest`; None of a detached one.
    """

    state: str
    failures: int = 0
    error: str | None = None
    restarts: int | None = None
    kept_by: str | None = None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state == RUNNING


@dataclass(frozen=True)
class IngestState:
    """What brings a source in.

    Args:
        at_work: whether an ingest of it is, on this machine.
        following: the `ingest --follow` that should run, whether or not it does.
        refused: what the newest ingest was refused for, where a person must mend that.
        by_sensor: whether a sensor of Dagster polls the source.
    """

    at_work: bool = False
    following: Command | None = None
    refused: str | None = None
    by_sensor: bool = False

    @property
    def up(self) -> bool | None:
        """Whether an ingest is at work; None where none is and none should be."""
        return True if self.at_work else None if self.following is None else False


@dataclass(frozen=True)
class WayState:
    """A lane, or the way of an asset to its topic.

    Args:
        state: `running`, `waiting`, `ended` though nobody ended it; None of one that rests, and of
            a topic that no command keeps: a stream brings out by itself.
        error: what it waits for, or why it ended.
    """

    state: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Services:
    """What runs.

    Args:
        up: by process, whether it runs; the broker only where one was started.
        streams: by asset, those that should run.
        ingests: by source.
        emits: by asset, those that `sink --follow` keeps, or should.
        lanes: by name.
        disk_free, disk_size: bytes of the disk that holds the home.
    """

    up: Mapping[str, bool]
    streams: Mapping[str, StreamState]
    ingests: Mapping[str, IngestState]
    emits: Mapping[str, WayState]
    lanes: Mapping[str, WayState]
    disk_free: int
    disk_size: int


class Look:
    """Looks at them, now and then.

    Args:
        sources, lanes: the names of those that are looked at.
    """

    def __init__(
        self, settings: Settings, sources: Iterable[str] = (), lanes: Iterable[str] = ()
    ) -> None:
        self._settings = settings
        self._sources, self._lanes = [*sources], [*lanes]
        self._seen: tuple[float, Services] | None = None

    def look(self) -> Services:
        """What runs, some seconds ago at most."""
        now = time.monotonic()
        if self._seen is None or now - self._seen[0] > EVERY:
            self._seen = (now, self._services())
        return self._seen[1]

    def _services(self) -> Services:
        settings = self._settings
        up, found = _processes(settings), foreground.commands(settings)
        of = {(c.kind, c.name): c for c in found}
        free, size = _disk(settings)
        return Services(
            up=up,
            streams=_streams(settings, found, engine=up[ENGINE]),
            ingests={
                name: IngestState(
                    at_work(settings, name),
                    of.get((INGEST, name)),
                    refusal(settings, name),
                    by_sensor=polls.recent(settings, name, time.time()),
                )
                for name in self._sources
            },
            emits={c.name: _way(c) for c in found if c.kind == EMIT},
            lanes={name: _lane(settings, name, of.get((LANE, name))) for name in self._lanes},
            disk_free=free,
            disk_size=size,
        )


def _processes(settings: Settings) -> dict[str, bool]:
    up = {name: ManagedProcess(settings.home, name).running() is not None for name in NAMES}
    if ManagedProcess(settings.home, BROKER).recorded() is None:
        del up[BROKER]
    up[ENGINE] = _engine(settings, up[ENGINE])
    return up


def _streams(
    settings: Settings, commands: Iterable[Command], *, engine: bool
) -> dict[str, StreamState]:
    """The streams that should run: those that were wished for, and those that commands keep."""
    found, seen = dict[str, StreamState](), noted.noted(settings, time.time_ns() // 1000)
    for asset, wish in wishes.all_of(settings).items():
        stream = seen.get(asset)
        if stream is None or stream.since != wish.since:
            found[asset] = StreamState("unknown" if engine else "engine down")
        else:
            state = stream.state if engine else "engine down"
            found[asset] = StreamState(state, stream.failures, stream.error, stream.restarts)
    for command in commands:
        kept = {STREAM: (command.name,), INGEST: command.assets}.get(command.kind, ())
        for asset in kept:
            if asset not in found or not found[asset].running:
                found[asset] = _kept(command, engine=engine)
    return found


def _kept(command: Command, *, engine: bool) -> StreamState:
    """The stream of a command."""
    waits = "waiting" if engine else "engine down"
    state = (RUNNING if engine and not command.error else waits) if command.runs else "ended"
    return StreamState(state, error=command.error, restarts=command.restarts, kept_by=command.kind)


def _way(command: Command) -> WayState:
    """The way out that a command keeps."""
    if not command.runs:
        return WayState("ended", command.error)
    return WayState("waiting" if command.error else RUNNING, command.error)


def _lane(settings: Settings, name: str, command: Command | None) -> WayState:
    process = ManagedProcess(home.lane_folder(settings, name), "engine")
    error = None if command is None else command.error
    if process.running() is not None and error is None:
        return WayState(RUNNING)
    if command is not None and command.runs:
        return WayState("waiting", error)
    # What was stopped on purpose leaves no record.
    expected = command is not None or process.recorded() is not None
    return WayState("ended", error) if expected else WayState()


def _disk(settings: Settings) -> tuple[int, int]:
    """What is free and in all, of the disk of the warehouse, or of the home where that is
    elsewhere."""
    place = Path(settings.warehouse) if settings.warehouse.startswith("/") else settings.home
    found = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists()))
    return found.free, found.total


def _engine(settings: Settings, started: bool) -> bool:
    """Whether somebody listens where the engine is: it is not asked anything."""
    if settings.remote is None:
        return started and is_listening(settings.engine_port)
    host, _, port = settings.remote.removeprefix("sc://").partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host or port, int(port) if host else 15002), timeout=0.5):
            return True
    except OSError:
        return False
