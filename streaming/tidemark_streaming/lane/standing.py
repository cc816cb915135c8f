"""The status of a lane: whether it was started, and whether it still processes records."""

from dataclasses import dataclass

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark_streaming.lane import home, query
from tidemark_streaming.lane.definition import Lane


@dataclass(frozen=True)
class Standing:
    """The status of a lane.

    Args:
        started: whether the lane was started and not stopped since.
        runs: whether it processes records.
        said: both as text, with the command that restarts it if it should run but does not.
    """

    started: bool
    runs: bool
    said: str


def standing(settings: Settings, lane: Lane) -> Standing:
    """Return the status of a lane as its own Spark reports it; the home's engine is not
    involved."""
    name = lane.name
    if not home.started(settings, name):
        return Standing(started=False, runs=False, said=f"{lane} is not started.")
    mend = f"`tidemark lane {name}` continues from its last checkpoint."
    if not home.runs(settings, name):
        return Standing(started=True, runs=False, said=f"{lane}: its Spark has exited; {mend}")
    try:
        with home.visit(settings, name) as spark:
            runs = query.find(spark, lane) is not None
    except EngineError as error:
        return Standing(started=True, runs=False, said=f"{lane}: {error}")
    return Standing(
        True, runs, f"{lane} runs." if runs else f"{lane}: its queries have ended; {mend}"
    )
