"""A stream brings out what it publishes, and what others publish meanwhile."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from rebuilt import Table, records
from recorded import Recorded
from support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from tidemark.base.errors import TidemarkError
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling, Window
from tidemark.engine.connect import free_port
from tidemark.run.runner import backfill
from tidemark.store.warehouse import Warehouse
from tidemark_streaming import continuous
from tidemark_streaming.kafka import KafkaTopic, broker
from tidemark_streaming.outbox.follow import follow
from topics import Topics

ARRIVALS = some_arrivals()


def emitting(topic: KafkaTopic) -> WindowedTransform:
    return replace(
        PER_MINUTE,
        aggregates={"n": agg.count()},
        accumulation="accumulating",
        publishes_to=topic,
    )


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def same(warehouse: Warehouse, servers: str, asset: WindowedTransform, topic: str) -> bool:
    """Whether the topic has the published table."""
    table = Table("accumulating")
    for record in records(servers, topic):
        table.take(*record)
    rows = warehouse.take(asset.table)
    there = {
        (iso(start), key, seq, n)
        for start, key, seq, n in zip(
            rows["window_start"].cast(pa.int64()).to_pylist(),
            *(rows[name].to_pylist() for name in ("sensor", "seq", "n")),
            strict=True,
        )
    }
    return there == {
        (r["window_start"], r["keys"]["sensor"], r["seq"], r["values"]["n"])
        for r in table.rows.values()
    }


def test_a_stream_brings_out_what_is_published(warehouse: Warehouse, topics: Topics) -> None:
    topic = topics.create(name=topics.unused())
    asset = emitting(KafkaTopic(topic, topics.servers))
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    continuous.start(warehouse, asset)
    until(lambda: warehouse.exists(asset.table))
    until(lambda: same(warehouse, topics.servers, asset, topic))
    backfill(warehouse, asset, *minutes(0, 4))
    until(lambda: same(warehouse, topics.servers, asset, topic))
    assert continuous.stop(warehouse, asset)


def test_brokers_that_are_gone_for_a_while_hold_up_the_outbox_alone(
    recording: Callable[[Window], Recorded], tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "home", kafka_port=free_port())
    servers = broker.address(settings)
    played = recording(Tumbling("1 minute")).play(tmp_path)
    asset = played.to(KafkaTopic("panes", servers), "accumulating")
    warehouse = played.warehouse
    failures: list[TidemarkError] = []
    ended = threading.Event()
    thread = threading.Thread(
        target=follow, args=(played.warehouse, asset, ended, lambda _: None, failures.append)
    )
    try:
        broker.start(settings)
        thread.start()
        played.run()
        topics = Topics(servers)
        until(lambda: "panes" in topics.admin.list_topics(timeout=10).topics)
        until(lambda: same(warehouse, servers, asset, "panes"))
        broker.process(settings).stop()
        with closing(socket.socket()) as probe:
            assert probe.connect_ex(("127.0.0.1", settings.kafka_port)) != 0
        played.run(2)
        until(lambda: bool(failures))
        assert f"{servers} can't be" in str(failures[0])
        broker.start(settings)
        until(lambda: same(warehouse, servers, asset, "panes"))
    finally:
        ended.set()
        thread.join(60)
        broker.process(settings).stop()
