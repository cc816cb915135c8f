"""The state and lag of lanes, without requests to an engine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from helpers.kafka.topics import Topics, clicks
from helpers.processes.ending import GONE, end_with_an_error
from helpers.suite.scrapes import Values, scraped, seen, value, watcher
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground
from tidemark_streaming.extras.lane import Lane, home
from tidemark_streaming.extras.lane.name import NAME
from tidemark_streaming.findings import polls
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.monitor import page


def as_it_is(clicks: DataFrame) -> DataFrame:
    return clicks


def test_a_lane_is_reported_from_its_checkpoints_to_its_end(
    tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home")
    monkeypatch.setattr(polls, "EVERY", 0.0)
    name = topics.create(partitions=2)
    to = KafkaSink("out", topics.servers)
    lane = Lane(name="clicks_out", connector=topics.connector(name), prepare=as_it_is, to=to)
    watching = watcher(monkeypatch, settings, pipelines=[lane])
    assert value(scraped(watching), "tidemark_lane_up", lane="clicks_out") is None
    topics.send(name, clicks(*range(5)), 0)
    topics.send(name, clicks(1, 2), 1)
    place = home.lane_folder(settings, lane.name) / "checkpoints" / "records"
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True)
    # Checkpoints that Spark has completed, and one that it has begun.
    for number, ends in ((0, {"0": 1}), (1, {"0": 3, "1": 2}), (2, {"0": 5, "1": 2})):
        offsets = f"v1\n{{}}\n{json.dumps({name: ends})}"
        (place / "offsets" / str(number)).write_text(offsets)
    (place / "commits" / "0").write_text("v1\n{}")
    own = {"lane": "clicks_out", "topic": name}

    def waits(partition: int) -> Callable[[Values], float | None]:
        labels = {**own, "partition": str(partition)}
        return lambda found: value(found, "tidemark_lane_consumer_lag", **labels)

    # All records of the new partition are pending.
    seen(watching, lambda found: (waits(0)(found), waits(1)(found)) == (4, 2))
    (place / "commits" / "1").write_text("v1\n{}")
    seen(watching, lambda found: (waits(0)(found), waits(1)(found)) == (2, 0))

    with foreground.record_running(settings, NAME, "clicks_out") as entry:
        entry.mark_waiting(DataError("Kafka is gone."))
        assert value(scraped(watching), "tidemark_lane_up", lane="clicks_out") == 0
    end_with_an_error(settings, NAME, "clicks_out")
    assert value(scraped(watching), "tidemark_lane_up", lane="clicks_out") == 0
    (shown,) = page.create_page_data(watching.read(), "tidemark", 1)["pipelines"]
    assert (shown["name"], shown["state"], shown["error"]) == (
        "clicks_out",
        "ended",
        GONE,
    )
    assert (shown["extra"], shown["come"], shown["waiting"]) == ("lane", [name], 2)
    assert foreground.forget_command(settings, NAME, "clicks_out")
    assert value(scraped(watching), "tidemark_lane_up", lane="clicks_out") is None
