"""A stream publishes its windows to its sink, and also windows of concurrent backfills."""

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from helpers.data.support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from tidemark.base.instants import format_instant
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.run.runner import backfill
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.streams import continuous

ARRIVALS = some_arrivals()


def emitting(topic: KafkaSink) -> WindowedTransform:
    return replace(
        PER_MINUTE,
        aggregates={"n": agg.count()},
        accumulation="accumulating",
        sink=topic,
    )


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def same(warehouse: Warehouse, servers: str, asset: WindowedTransform, topic: str) -> bool:
    """Return whether the topic equals the published table."""
    table = Table("accumulating")
    for record in records(servers, topic):
        table.take(*record)
    rows = warehouse.load_rows(asset.published_table)
    there = {
        (format_instant(start), key, commit_number, n)
        for start, key, commit_number, n in zip(
            rows["window_start"].cast(pa.int64()).to_pylist(),
            *(rows[name].to_pylist() for name in ("sensor", "commit_number", "n")),
            strict=True,
        )
    }
    return there == {
        (r["window_start"], r["keys"]["sensor"], r["commit_number"], r["values"]["n"])
        for r in table.rows.values()
    }


@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_publishes_its_windows_and_those_of_a_backfill(
    warehouse: Warehouse, topics: Topics
) -> None:
    topic = topics.create(name=topics.unused())
    asset = emitting(KafkaSink(topic, topics.servers))
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    continuous.start_query(warehouse, asset)
    until(lambda: warehouse.has_table(asset.published_table))
    until(lambda: same(warehouse, topics.servers, asset, topic))
    backfill(warehouse, asset, *minutes(0, 4))
    until(lambda: same(warehouse, topics.servers, asset, topic))
    assert continuous.stop_query(warehouse, asset)
