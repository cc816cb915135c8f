"""Read the state of lanes and their lag, without an engine.

The state of a lane is read from files. Its lag is the number of offsets between its last checkpoint
and the end of its topics. The topics are polled in the background, so that brokers that don't
answer delay nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidemark.base.errors import EngineError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark_streaming.base import foreground
from tidemark_streaming.base.extra import PipelineOverview
from tidemark_streaming.base.foreground import Command
from tidemark_streaming.extras.lane import home, query
from tidemark_streaming.extras.lane.checkpoints import read_newest
from tidemark_streaming.extras.lane.definition import Lane
from tidemark_streaming.extras.lane.name import NAME
from tidemark_streaming.findings.polls import BROKER_SECONDS, Answers
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.streams.supervisor import RUNNING


@dataclass(frozen=True)
class _Lag:
    waiting: Mapping[tuple[str, int], int] | None = None
    trouble: str | None = None


class LaneMonitor:
    """Reads the overviews of lanes repeatedly, and polls their lag in the background."""

    def __init__(self, settings: Settings, lanes: Sequence[Lane]) -> None:
        self._settings = settings
        self._lanes = lanes
        self._lags = Answers[_Lag]()

    def read(self) -> list[PipelineOverview]:
        """Return the overview of each lane, with the newest lag that is known."""
        commands = foreground.list_commands(self._settings)
        running = {command.name: command for command in commands if command.kind == NAME}
        return [self._read_overview(lane, running.get(lane.name)) for lane in self._lanes]

    def _read_overview(self, lane: Lane, command: Command | None) -> PipelineOverview:
        lag = self._lags.get_newest(lane.name, partial(_read_lag, self._settings, lane)) or _Lag()
        overview = PipelineOverview(lane, waiting=lag.waiting, trouble=lag.trouble)
        process = ManagedProcess(home.lane_folder(self._settings, lane.name), "engine")
        error = None if command is None else command.error
        if process.find_running() is not None and error is None:
            return replace(overview, state=RUNNING)
        if command is not None and command.runs:
            return replace(overview, state="waiting", error=error)
        # A lane that was stopped leaves no record.
        expected = command is not None or process.read_record() is not None
        if expected:
            return replace(overview, state="ended", error=error)
        return overview


def _read_lag(settings: Settings, lane: Lane) -> _Lag:
    checkpoint = read_newest(home.lane_folder(settings, lane.name))
    if checkpoint is None:
        return _Lag()
    connector = lane.connector
    try:
        available = Cluster(
            connector.broker_addresses, connector.client, BROKER_SECONDS
        ).read_topics(connector.topics)
    except TidemarkError as error:
        return _Lag(trouble=str(error))
    waiting = dict[tuple[str, int], int]()
    for name, topic in available.items():
        for partition, (low, end) in topic.offsets.items():
            processed_end = checkpoint.ends.get((name, partition), low)
            waiting[name, partition] = max(0, end - processed_end)
    return _Lag(waiting)


@dataclass(frozen=True)
class LaneStatus:
    """The state of a lane: whether it was started, and whether it processes records.

    Args:
        started: true if the lane was started and not stopped since.
        runs: true if it processes records.
        message: the status as text, with the command that restarts the lane if it should run but
            does not.
    """

    started: bool
    runs: bool
    message: str


def lane_status(settings: Settings, lane: Lane) -> LaneStatus:
    """Return the status of a lane, which its own Spark reports. The home's engine is not needed."""
    name = lane.name
    if not home.is_started(settings, name):
        return LaneStatus(started=False, runs=False, message=f"{lane} is not started.")
    remedy = f"`tidemark lane {name}` continues from its last checkpoint."
    if not home.is_running(settings, name):
        return LaneStatus(
            started=True, runs=False, message=f"{lane}: its Spark has exited; {remedy}"
        )
    try:
        with home.visit_session(settings, name) as spark:
            runs = query.find_queries(spark, lane) is not None
    except EngineError as error:
        return LaneStatus(started=True, runs=False, message=f"{lane}: {error}")
    if runs:
        return LaneStatus(started=True, runs=True, message=f"{lane} runs.")
    message = f"{lane}: its queries have ended; {remedy}"
    return LaneStatus(started=True, runs=False, message=message)
