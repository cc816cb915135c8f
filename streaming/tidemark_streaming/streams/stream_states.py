"""Find the streams that should run, and their states, without the engine."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.base.settings import Settings
from tidemark_streaming.base.foreground import INGEST, STREAM, Command
from tidemark_streaming.streams import desired_streams, supervisor
from tidemark_streaming.streams.supervisor import GIVEN_UP, RUNNING, WAITING

UNKNOWN, ENGINE_DOWN, ENDED = "unknown", "engine down", "ended"


@dataclass(frozen=True)
class StreamState:
    """A stream, or a command that publishes to a sink, that should run.

    Args:
        state: one of these states; while the engine does not run, `engine down` instead of any
            state but `ended` and `given up`, which an engine alone does not change.
            A detached stream has the newest state that the supervisor recorded (`running`,
            `waiting`, `starting` or `given up`), or `unknown` if it recorded none.
            A command's stream is `running`, `waiting`, or, if the command exited without being
            stopped, `ended`.
        failures: how often in a row the stream ended or could not be started.
        error: why the stream ended last or the command waits; None without an error.
        restarts: how often the stream was restarted; None if that is unknown.
        kept_by: the command that runs the stream, such as `stream` or `ingest`; None if the stream
            is detached.
    """

    state: str
    failures: int = 0
    error: str | None = None
    restarts: int | None = None
    kept_by: str | None = None

    @property
    def is_running(self) -> bool:
        """True if the stream runs."""
        return self.state == RUNNING


def read_streams(
    settings: Settings, commands: Iterable[Command], *, engine: bool
) -> dict[str, StreamState]:
    """Return the streams that should run, by asset: requested streams and those of commands.

    Args:
        commands: the commands that run or should run.
        engine: true if the engine runs.
    """
    states = dict[str, StreamState]()
    seen = supervisor.read_statuses(settings, time.time_ns() // 1000)
    for asset, request in desired_streams.read_all(settings).items():
        stream = seen.get(asset)
        if stream is None or stream.since != request.since:
            states[asset] = StreamState(UNKNOWN if engine else ENGINE_DOWN)
        else:
            state = stream.state if engine or stream.state == GIVEN_UP else ENGINE_DOWN
            states[asset] = StreamState(state, stream.failures, stream.error, stream.restarts)
    for command in commands:
        assets = {STREAM: (command.name,), INGEST: command.assets}.get(command.kind, ())
        for asset in assets:
            if asset not in states or not states[asset].is_running:
                states[asset] = state_of(command, engine=engine)
    return states


def state_of(command: Command, *, engine: bool) -> StreamState:
    if not command.runs:
        state = ENDED
    elif not engine:
        state = ENGINE_DOWN
    elif command.error:
        state = WAITING
    else:
        state = RUNNING
    return StreamState(state, error=command.error, restarts=command.restarts, kept_by=command.kind)
