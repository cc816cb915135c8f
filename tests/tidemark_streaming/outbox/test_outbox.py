"""Who reads the topic has the published table, whatever happened on the way."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from rebuilt import Table, records
from support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.base.instants import iso
from tidemark.base.secret import secret
from tidemark.define import aggregates as agg
from tidemark.define.fingerprint import fingerprint
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import EachArrival, Trigger
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.quality import between, quarantine
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import KafkaTopic
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.outbox import Outbox
from topics import Topics

ARRIVALS = some_arrivals()
WINDOWS = [Tumbling("1 minute"), Sliding("2 minutes", "1 minute"), Session("20 seconds")]
ACCUMULATIONS = ["accumulating", "discarding", "retracting"]


def emitting(topics: Topics, accumulation: str, **more: Any) -> WindowedTransform:  # noqa: ANN401
    """An asset that fires early and late, and publishes to a topic that is not there yet."""
    usual: dict[str, Any] = {
        "aggregates": {"n": agg.count(), "high": agg.count(where="value > 0.5")},
        "trigger": Trigger(early=EachArrival()),
        "accumulation": accumulation,
        "publishes_to": KafkaTopic(topics.unused(), topics.servers, partitions=2),
    }
    return replace(PER_MINUTE, **usual | more)


def each(topics: Topics, asset: WindowedTransform) -> list[WindowedTransform]:
    """The asset in every accumulation, each with a topic of its own.

    What is published does not depend on the accumulation, so they may share its tables.
    """
    return [
        replace(
            asset,
            accumulation=accumulation,
            publishes_to=KafkaTopic(topics.unused(), topics.servers, partitions=2),
        )
        for accumulation in ACCUMULATIONS
    ]


def topic_of(asset: WindowedTransform) -> KafkaTopic:
    assert isinstance(asset.publishes_to, KafkaTopic)
    return asset.publishes_to


def rebuilt(topics: Topics, asset: WindowedTransform, *, once: bool = False) -> Table:
    """The table that a consumer makes of the topic."""
    table = Table(str(asset.accumulation), ("n", "high"), once)
    for record in records(topics.servers, topic_of(asset).name):
        table.take(*record)
    return table


def plain(value: Any) -> Any:  # noqa: ANN401
    return iso(round(value.timestamp() * 1e6)) if hasattr(value, "timestamp") else value


def assert_same(warehouse: Warehouse, topics: Topics, asset: WindowedTransform) -> None:
    """What the topic tells is the published table, row by row and column by column."""
    found = rebuilt(topics, asset).rows
    there = {}
    for row in warehouse.take(asset.table).to_pylist():
        told = {name: plain(value) for name, value in row.items()}
        there[tuple(told[c] for c in asset.by_window)] = told
    assert found.keys() == there.keys()
    for window, told in there.items():
        got = found[window]
        assert got["values"] == {name: told[name] for name in asset.aggregates}, window
        for ours, theirs in (("pane", "revision"), ("last", "final"), *((c, c) for c in SAME)):
            assert got[ours] == told[theirs], (window, ours)


SAME = ("events", "late_events", "timing", "last_arrival", "as_of", "seq", "quality")


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_topic_tells_the_published_table(
    warehouse: Warehouse, topics: Topics, window: Window
) -> None:
    asset = emitting(topics, "discarding", window=window)
    every = each(topics, asset)

    def follows() -> None:
        for one in every:
            # Another one each time, which finds where it stands in the topic alone.
            Outbox(warehouse, one).emit()
            assert_same(warehouse, topics, one)
            assert Outbox(warehouse, one).emit().transactions == 0

    assert Outbox(warehouse, asset).emit().transactions == 0
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, asset, limit=2)
    follows()
    incremental(warehouse, asset)
    follows()
    backfill(warehouse, asset, *minutes(0, 2))
    ingest(warehouse, READINGS, ARRIVALS[3:])
    incremental(warehouse, asset)
    follows()
    assert correct(warehouse, asset) is not None
    follows()


def test_discarding_panes_hold_the_events_of_their_firing_alone(
    warehouse: Warehouse, topics: Topics
) -> None:
    asset = emitting(topics, "discarding")
    outbox = Outbox(warehouse, asset)
    ingest(warehouse, READINGS, ARRIVALS)
    while incremental(warehouse, asset, limit=1):
        outbox.emit()
    assert_same(warehouse, topics, asset)
    told = [v for _, _, v in records(topics.servers, topic_of(asset).name) if "reset" not in v]
    assert not any(value["retraction"] for value in told)
    assert sum(v["values"]["n"] for v in told if v["values"]) == sum(
        row["n"] for row in warehouse.take(asset.table).to_pylist()
    )
    panes = warehouse.take(asset.panes_table).to_pylist()
    assert sorted((v["pane"], v["values"]["n"]) for v in told if v["values"]) == sorted(
        (row["pane"], row["n"]) for row in panes
    )
    assert {value["run"] for value in told} == {
        marker.run for marker in Asset(warehouse, asset).state.since(-1)
    }


def test_what_is_withheld_goes_out_when_it_is_released(
    warehouse: Warehouse, topics: Topics
) -> None:
    asset = emitting(topics, "discarding", expectations=(between("n", 0, 4),))
    every = each(topics, asset)
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, asset, limit=2)
    for one in every:
        Outbox(warehouse, one).emit()
        assert_same(warehouse, topics, one)
    incremental(warehouse, asset)
    withheld = warehouse.take(asset.quarantine_table).num_rows
    before = warehouse.take(asset.table).num_rows
    assert withheld
    quarantine.release(warehouse, asset, quarantine.Choice())
    assert warehouse.take(asset.quarantine_table).num_rows == 0
    for one in every:
        Outbox(warehouse, one).emit()
        assert_same(warehouse, topics, one)
    assert warehouse.take(asset.table).num_rows > before


DYING = """
import sys
from pathlib import Path
from pyspark import cloudpickle

from tidemark.store.warehouse import Warehouse
from tidemark_streaming.outbox import outbox

folder, *place = sys.argv[1:]
# So there is more than one transaction to be killed in. The engine is not asked.
outbox.VERSIONS = 1
transform = cloudpickle.loads(Path(folder, "asset").read_bytes())
warehouse = Warehouse(None, *place, registered=False)
print("begins", flush=True)
outbox.Outbox(warehouse, transform).emit()
"""


def dying(
    folder: Path, warehouse: Warehouse, asset: WindowedTransform, **env: str
) -> subprocess.Popen[str]:
    """A process that brings the asset out, one version at a time."""
    (folder / "asset").write_bytes(cloudpickle.dumps(asset))
    place = [str(folder), warehouse.location, warehouse.database]
    return subprocess.Popen(
        [sys.executable, "-c", DYING, *place],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | env,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_anywhere_the_next_one_goes_on(
    warehouse: Warehouse, topics: Topics, tmp_path: Path
) -> None:
    asset, seen = emitting(topics, "retracting"), [0]
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, asset, limit=1)
    name = topic_of(asset).name
    for step, more in (("emit", 0), ("emitted", 1), ("noted", 1), ("emit", 0), ("emitted", 1)):
        with dying(tmp_path, warehouse, asset, TIDEMARK_FAIL_AT=step) as process:
            process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        seen.append(len(records(topics.servers, name, committed=False)))
        assert (seen[-1] > seen[-2]) == more, step
        incremental(warehouse, asset, limit=1)
    Outbox(warehouse, asset).emit()
    assert_same(warehouse, topics, asset)
    # What the second and the fifth had produced was undone.
    assert len(records(topics.servers, name)) < len(records(topics.servers, name, committed=False))


def test_killed_at_any_instant_the_next_one_goes_on(
    warehouse: Warehouse, topics: Topics, tmp_path: Path
) -> None:
    asset = emitting(topics, "discarding")
    ingest(warehouse, READINGS, ARRIVALS)
    while incremental(warehouse, asset, limit=1):
        pass
    chance = random.Random(5)
    Outbox(warehouse, asset).emit()
    for _ in range(4):
        backfill(warehouse, asset, *minutes(0, chance.randint(1, 4)))
        with dying(tmp_path, warehouse, asset) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            time.sleep(chance.random() * 0.3)
            process.kill()
    Outbox(warehouse, asset).emit()
    assert_same(warehouse, topics, asset)


def test_who_was_thought_dead_is_refused(warehouse: Warehouse, topics: Topics) -> None:
    asset = emitting(topics, "accumulating")
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, asset, limit=2)
    zombie = Outbox(warehouse, asset)
    zombie.emit()
    incremental(warehouse, asset, limit=1)
    Outbox(warehouse, asset).emit()
    incremental(warehouse, asset)
    with pytest.raises(ConflictError, match="Another process brings 'per_minute' out"):
        zombie.emit()
    zombie.emit()
    assert_same(warehouse, topics, asset)


def test_a_new_epoch_takes_back_what_went_before(warehouse: Warehouse, topics: Topics) -> None:
    asset = emitting(topics, "retracting")
    ingest(warehouse, READINGS, ARRIVALS, ends=False)
    incremental(warehouse, asset, limit=2)
    outbox = Outbox(warehouse, asset)
    outbox.emit()
    # By hand; then as the topic has more partitions; as its history is gone; and as it is new.
    outbox.emit(anew=True)
    assert_same(warehouse, topics, asset)
    topics.grow(topic_of(asset).name, 3)
    incremental(warehouse, asset, limit=1)
    Outbox(warehouse, asset).emit()
    assert_same(warehouse, topics, asset)
    incremental(warehouse, asset, limit=1)
    incremental(warehouse, asset)
    warehouse.committer.checkpoint(asset.table, forget=False)
    log = Path(warehouse.path(asset.table).removeprefix("file://"), "_delta_log")
    for commit in log.glob("*.json"):
        commit.unlink()
    Outbox(warehouse, asset).emit()
    assert_same(warehouse, topics, asset)
    epochs = {v["epoch"] for _, _, v in records(topics.servers, topic_of(asset).name)}
    assert len(epochs) == 4
    topics.delete(topic_of(asset).name)
    cluster, deadline = Cluster(topics.servers, {}), time.monotonic() + 30
    while cluster.has(topic_of(asset).name):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    Outbox(warehouse, asset).emit()
    assert_same(warehouse, topics, asset)


def test_brokers_that_are_gone_are_one_sentence(warehouse: Warehouse, topics: Topics) -> None:
    nowhere = KafkaTopic(
        "panes", "127.0.0.1:1", client={"socket.connection.setup.timeout.ms": "1000"}
    )
    asset = emitting(topics, "accumulating", publishes_to=nowhere)
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, asset)
    with pytest.raises(DataError, match=r"Kafka at 127.0.0.1:1 can't be "):
        Outbox(warehouse, asset).emit()


def test_where_panes_are_not_kept_there_are_none_to_publish() -> None:
    with pytest.raises(DefinitionError, match="choose accumulating, discarding or retracting"):
        replace(PER_MINUTE, publishes_to=KafkaTopic("departures"))
    with pytest.raises(DefinitionError, match="'a b' can't name a topic"):
        KafkaTopic("a b")
    with pytest.raises(DefinitionError, match="1 or more partitions, not 0"):
        KafkaTopic("a", partitions=0)


def test_where_panes_go_changes_nothing_of_what_is_computed() -> None:
    asset = replace(PER_MINUTE, accumulation="accumulating")
    topic = KafkaTopic("departures", client={"sasl.password": secret("env:NOBODYS")})
    assert fingerprint(replace(asset, publishes_to=topic)) == fingerprint(asset)
    with pytest.raises(DefinitionError, match="Topic 'departures' has the value of sasl"):
        KafkaTopic("departures", client={"sasl.password": "none-of-anybodys"})
