"""Start and stop a lane's own Spark, whose files are in the folder `lanes/<name>` of the home.

Real-time mode keeps one task busy for each partition as long as the lane runs. On the home's
engine, these tasks could occupy all task slots, and other tasks would wait. A lane therefore has
its own small Spark, which can run a task for each partition and one for the lane's dead letters.
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
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark_streaming.extras.lane.definition import Lane
from tidemark_streaming.extras.lane.options import secret_variables
from tidemark_streaming.kafka.cluster import Cluster

_SPARK_MEMORY = "1g"


def lane_folder(settings: Settings, name: str) -> Path:
    """Return the folder of a lane."""
    return _lane_folder(settings) / name


def settings_of(settings: Settings, name: str) -> Settings:
    """Return the settings for a lane's Spark: the settings of the home, but with the lane's own
    folder, port and memory."""
    home = lane_folder(settings, name)
    record = engine.ManagedProcess(home, "engine").find_running()
    port = free_port() if record is None else record.port
    lane_settings = {
        "home": home,
        "engine_port": port,
        "engine_memory": _SPARK_MEMORY,
        "remote": None,
    }
    # Only one process can have the port of Spark's web UI, and the home's engine has it.
    lane_settings |= {"engine_ui_port": None}
    return settings.model_copy(update=lane_settings)


def ensure_engine(
    settings: Settings, lane: Lane, on_progress: ProgressCallback = ignore_progress
) -> Settings:
    """Start the lane's Spark, unless it is running. Restart it if it has fewer tasks than the lane
    needs. Return the settings of the lane's Spark."""
    tasks = _count_tasks(lane)
    lane_settings = settings_of(settings, lane.name)
    if (
        engine.ManagedProcess(lane_settings.home, "engine").find_running() is not None
        and _read_task_limit(lane_settings) < tasks
    ):
        on_progress(f"{lane} has more partitions than before: restarting its Spark")
        engine.stop_engine(lane_settings)
        lane_settings = settings_of(settings, lane.name)
    with _set_environment(
        {
            **secret_variables(lane.connector.client),
            **secret_variables(lane.dead_letter_topic.client),
        }
    ):
        engine.ensure_engine(lane_settings, on_progress, tasks=tasks)
    return lane_settings


def is_started(settings: Settings, name: str) -> bool:
    """Return whether a lane's Spark was started and not stopped since. It may have been killed."""
    return engine.ManagedProcess(_lane_folder(settings) / name, "engine").read_record() is not None


def is_running(settings: Settings, name: str) -> bool:
    """Return whether the process of a lane's Spark exists."""
    return engine.ManagedProcess(lane_folder(settings, name), "engine").find_running() is not None


def running_lanes(settings: Settings) -> list[str]:
    """Return the names of the lanes whose Spark runs."""
    names = sorted(folder.name for folder in _lane_folder(settings).glob("*"))
    return [name for name in names if is_running(settings, name)]


def stop_lane(settings: Settings, name: str) -> bool:
    """Stop a lane and its Spark. Return False if it did not run."""
    return engine.stop_engine(settings_of(settings, name))


def open_session(lane_settings: Settings) -> SparkSession:
    """Connect to a lane's Spark. Return the session that runs the lane's queries.

    Every process gets the same session, so that each can find the queries of the others.

    Args:
        lane_settings: the settings that `ensure_engine` returned.
    """
    return engine.connect_session(lane_settings, _session_id(lane_settings))


@contextmanager
def visit_session(settings: Settings, name: str) -> Iterator[SparkSession]:
    """Connect to the session of a running lane's queries for the duration of a `with` block."""
    lane_settings = settings_of(settings, name)
    with engine.visit_session(lane_settings, _session_id(lane_settings)) as spark:
        yield spark


def _lane_folder(settings: Settings) -> Path:
    return settings.home / "lanes"


def _session_id(lane_settings: Settings) -> str:
    return str(uuid5(NAMESPACE_URL, f"tidemark:{lane_settings.home}"))


def _count_tasks(lane: Lane) -> int:
    connector = lane.connector
    available = Cluster(connector.broker_addresses, connector.client).read_topics(connector.topics)
    return sum(len(topic.offsets) for topic in available.values()) + 1


def _read_task_limit(lane_settings: Settings) -> int:
    """Return how many tasks a lane's running Spark can run in parallel.

    Args:
        lane_settings: the settings of the lane's Spark.
    """
    with engine.visit_session(lane_settings, _session_id(lane_settings)) as spark:
        return int(str(spark.conf.get("spark.master")).removeprefix("local[").removesuffix("]"))


@contextmanager
def _set_environment(more: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started in a `with` block."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            os.environ.pop(name, None)
