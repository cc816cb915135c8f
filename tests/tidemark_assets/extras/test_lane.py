"""Test lanes in Dagster: their topics are assets, each with a check that the lane runs."""

import os
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from pyspark.sql import DataFrame

from helpers.dagster.ticks import of_part
from helpers.kafka.topics import CLICKS
from helpers.processes.ending import left
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.build import DagsterOptions
from tidemark_assets.extras.lane import RUNS, definitions, sensor_parts, topic_keys
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.kafka import KafkaConnector, KafkaSink


def seen(clicks: DataFrame) -> DataFrame:
    """Clicks, each by itself."""
    return clicks


LANE = Lane(
    name="clicks_seen",
    connector=KafkaConnector(CLICKS, ["clicks.raw"], servers="127.0.0.1:1"),
    prepare=seen,
    to={
        "JFK": KafkaSink("clicks.near", servers="127.0.0.1:1"),
        "LGA": KafkaSink("clicks.near", servers="127.0.0.1:1"),
        "*": KafkaSink("clicks-far", servers="127.0.0.1:1"),
    },
    route="kafka_topic",
)
FOUND = Domains({}, {}, {}, [LANE])
TOPICS = ["clicks.near", "clicks-far", "clicks_seen_dead_letters"]
SHOW = DagsterOptions(dg.DailyPartitionsDefinition("2024-01-01"))


def observed(instance: dg.DagsterInstance, topic: str) -> list[Any]:
    """Return whether the lane runs, from each observation of a topic in order."""
    key = dg.AssetKey(["clicks_seen", topic])
    found = instance.fetch_observations(key, limit=50, ascending=True).records
    events = [record.asset_observation for record in found]
    return [event.metadata["runs"].value for event in events if event]


def defined(settings: Settings) -> dg.Definitions:
    """Return the lane's assets and checks, and a job that runs the checks."""
    return dg.Definitions.merge(
        dg.Definitions(
            jobs=[dg.define_asset_job("look", dg.AssetSelection.all_asset_checks())],
            resources={"tidemark": TidemarkResource(settings)},
            executor=dg.in_process_executor,
        ),
        *definitions("some", FOUND, SHOW),
    )


def judged(settings: Settings) -> dict[str, tuple[bool, str]]:
    """Run the check of each topic as its page does. Return the results by topic."""
    done = defined(settings).resolve_job_def("look").execute_in_process()
    return {
        e.asset_key.path[-1]: (e.passed, e.description or "")
        for e in done.get_asset_check_evaluations()
    }


def test_topics_of_a_lane_are_assets_downstream_of_its_source(settings: Settings) -> None:
    graph = defined(settings).resolve_asset_graph()
    assert [key.path for key in topic_keys(LANE)] == [["clicks_seen", topic] for topic in TOPICS]
    for key in topic_keys(LANE):
        node = graph.get(key)
        assert node.is_external
        assert node.parent_keys == {dg.AssetKey("clicks_connector")}
        assert node.kinds == {"kafka"}
        assert {check.name for check in node.check_keys} == {RUNS}
    assert graph.get(dg.AssetKey("clicks_connector")).kinds == {"kafka"}
    near, far, letters = (graph.get(key).description or "" for key in topic_keys(LANE))
    assert near.startswith("Clicks, each by itself.\n\nRecords of clicks, transformed by Lane ")
    assert near.endswith("if `kafka_topic` is 'JFK', 'LGA'.")
    assert far.endswith("if `kafka_topic` is any other value.")
    assert "can't decode" in letters


def test_a_lane_that_exited_fails_the_check_of_its_topics(
    settings: Settings, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    [part] = sensor_parts(FOUND)
    ticks = of_part(part, instance, settings)
    assert ticks.skipped() == "Lane 'clicks_seen' is not started."
    assert judged(settings) == dict.fromkeys(TOPICS, (True, "Lane 'clicks_seen' is not started."))

    spark = ManagedProcess(settings.home / "lanes" / "clicks_seen", "engine")
    process = psutil.Process(spark.start(("sleep", "60"), 1, os.environ, tmp_path).pid)
    process.kill()
    assert left([process]) == []
    said = (
        "Lane 'clicks_seen': its Spark has exited; `tidemark lane clicks_seen` continues from its "
    )
    for _ in range(2):
        assert ticks.skipped().startswith(said)
    (told,) = {*judged(settings).values()}
    assert told == (False, f"{said}last checkpoint.")
    assert [observed(instance, topic) for topic in TOPICS] == [[False, False]] * 3, "at once, once"
    spark.stop()
    assert ticks.skipped() == "Lane 'clicks_seen' is not started."


@pytest.mark.parametrize("topic", TOPICS)
def test_the_lane_sensor_reports_the_check(
    settings: Settings, instance: dg.DagsterInstance, topic: str
) -> None:
    [part] = sensor_parts(FOUND)
    of_part(part, instance, settings).skipped()
    key = dg.AssetCheckKey(dg.AssetKey(["clicks_seen", topic]), RUNS)
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    assert record.status.value == "SUCCEEDED"
