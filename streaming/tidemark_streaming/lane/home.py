"""The Spark of a lane: one of its own, in the folder `lanes/<name>` of the home.

Real-time mode keeps a task busy for each partition, as long as the lane runs. On the engine of the
runs these would wait for each other; so a lane has a small Spark beside it, with a task for each
partition and one more for its dead letters.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from pyspark.sql import SparkSession

from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.engine.process import Tell, silent
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.lane.definition import Lane
from tidemark_streaming.lane.options import secrets

MEMORY = "1g"


def place(settings: Settings, name: str) -> Path:
    """The folder of a lane."""
    return _folder(settings) / name


def settings_of(settings: Settings, name: str) -> Settings:
    """The settings by which a lane's Spark is found: those of the home, with its own place."""
    home = place(settings, name)
    record = engine.Managed(home, "engine").running()
    port = free_port() if record is None else record.port
    own = {"home": home, "engine_port": port, "engine_memory": MEMORY, "remote": None}
    # One process has the port of Spark's pages: the home's engine.
    own |= {"engine_ui_port": None}
    return settings.model_copy(update=own)


def ensure(settings: Settings, lane: Lane, tell: Tell = silent) -> Settings:
    """Start the lane's Spark, unless it runs and has tasks enough; the settings by which it is
    found.

    Raises:
        EngineError: it can't be started.
        DataError: the brokers don't say how many partitions there are.
    """
    tasks = _tasks(lane)
    own = settings_of(settings, lane.name)
    if engine.Managed(own.home, "engine").running() is not None and _has(own) < tasks:
        tell(f"{lane} has more partitions than before: starting its Spark again")
        engine.stop(own)
        own = settings_of(settings, lane.name)
    with _environment({**secrets(lane.feed.client), **secrets(lane.letters.client)}):
        engine.ensure(own, tell, tasks=tasks)
    return own


def started(settings: Settings, name: str) -> bool:
    """Whether somebody has started a lane's Spark and nobody has stopped it, whether or not it
    runs."""
    return engine.Managed(_folder(settings) / name, "engine").recorded() is not None


def runs(settings: Settings, name: str) -> bool:
    """Whether a lane's Spark runs."""
    return engine.Managed(place(settings, name), "engine").running() is not None


def running(settings: Settings) -> list[str]:
    """The lanes whose Spark runs, by name."""
    names = sorted(folder.name for folder in _folder(settings).glob("*"))
    return [name for name in names if runs(settings, name)]


def stop(settings: Settings, name: str) -> bool:
    """End a lane with its Spark; False where it did not run."""
    return engine.stop(settings_of(settings, name))


def session(own: Settings) -> SparkSession:
    """The session in which a lane's queries live, the same for every process that asks.

    Args:
        own: what `ensure` gave.
    """
    return engine.session(own, _session_id(own))


@contextmanager
def visit(settings: Settings, name: str) -> Iterator[SparkSession]:
    """The session in which the queries of a lane live that runs, for the length of a block.

    Raises:
        EngineError: its Spark does not answer.
    """
    own = settings_of(settings, name)
    with engine.visit(own, _session_id(own)) as spark:
        yield spark


def _folder(settings: Settings) -> Path:
    return settings.home / "lanes"


def _session_id(own: Settings) -> str:
    return str(uuid5(NAMESPACE_URL, f"tidemark:{own.home}"))


def _tasks(lane: Lane) -> int:
    feed = lane.feed
    there = Cluster(feed.at, feed.client).topics(feed.topics)
    return sum(len(topic.offsets) for topic in there.values()) + 1


def _has(own: Settings) -> int:
    """How many tasks a Spark that runs has at once."""
    with engine.visit(own, _session_id(own)) as spark:
        return int(str(spark.conf.get("spark.master")).removeprefix("local[").removesuffix("]"))


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started in the block have these variables."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            os.environ.pop(name, None)
