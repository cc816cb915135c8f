"""How a lane stands: was it started, and does it still bring its records on?"""

from dataclasses import dataclass

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark_streaming.lane import home, query
from tidemark_streaming.lane.definition import Lane


@dataclass(frozen=True)
class Standing:
    """How a lane stands.

    Args:
        started: whether somebody started it, and nobody has stopped it since.
        runs: whether it brings its records on.
        said: both in a sentence, with what to do where it should run and doesn't.
    """

    started: bool
    runs: bool
    said: str


def standing(settings: Settings, lane: Lane) -> Standing:
    """How a lane stands, as its own Spark says; the engine is asked for nothing."""
    name = lane.name
    if not home.started(settings, name):
        return Standing(started=False, runs=False, said=f"{lane} was not started.")
    mend = f"`tidemark lane {name}` goes on from its last checkpoint."
    if not home.runs(settings, name):
        return Standing(started=True, runs=False, said=f"{lane}: its Spark is gone; {mend}")
    try:
        with home.visit(settings, name) as spark:
            runs = query.find(spark, lane) is not None
    except EngineError as error:
        return Standing(started=True, runs=False, said=f"{lane}: {error}")
    return Standing(True, runs, f"{lane} runs." if runs else f"{lane}: its queries ended; {mend}")
