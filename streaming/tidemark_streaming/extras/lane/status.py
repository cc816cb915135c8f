"""The status of a lane: started or not, and still processing records or not."""

from dataclasses import dataclass

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark_streaming.extras.lane import home, query
from tidemark_streaming.extras.lane.definition import Lane


@dataclass(frozen=True)
class LaneStatus:
    """The status of a lane.

    Args:
        started: true if the lane was started and not stopped since.
        runs: true if it processes records.
        message: both as text, with the command that restarts it if it should run but does not.
    """

    started: bool
    runs: bool
    message: str


def lane_status(settings: Settings, lane: Lane) -> LaneStatus:
    """Return the status of a lane as its own Spark reports it; the home's engine is not
    involved."""
    name = lane.name
    if not home.is_started(settings, name):
        return LaneStatus(started=False, runs=False, message=f"{lane} is not started.")
    remedy = f"`tidemark lane {name}` continues from its last checkpoint."
    if not home.is_running(settings, name):
        return LaneStatus(
            started=True, runs=False, message=f"{lane}: its Spark has exited; {remedy}"
        )
    try:
        with home.visit(settings, name) as spark:
            runs = query.find(spark, lane) is not None
    except EngineError as error:
        return LaneStatus(started=True, runs=False, message=f"{lane}: {error}")
    return LaneStatus(
        True, runs, f"{lane} runs." if runs else f"{lane}: its queries have ended; {remedy}"
    )
