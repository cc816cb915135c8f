"""Tests of the number of requests to an object store that ingests, runs and readers make."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.landing import BY_MINUTE, SOURCE, connector, land_minutes
from helpers.processes.object_store import serve_bucket
from helpers.processes.store_proxy import StoreProxy, serve_proxy, summarize_requests
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.committers import table_definitions
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers import record_store
from tidemark_streaming.base import foreground
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.snapshot import tables
from tidemark_streaming.snapshot.snapshot import Snapshot

ROUNDS = 6
"""The number of ingests and runs, so that each table gets a checkpoint."""

CHECKPOINTS = {"delta.checkpointInterval": "4"}

TABLES = 7
"""The tables of the source and the asset that a snapshot reads, and the ledger."""


LISTINGS = 2
"""The listings of the workers' records in a minute."""


@pytest.fixture
def proxy() -> Iterator[StoreProxy]:
    with serve_bucket(), serve_proxy() as served:
        yield served


def test_requests_of_ingests_runs_and_readers(
    spark: SparkSession, proxy: StoreProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_definitions, "_PROPERTIES_IN_OBJECT_STORES", CHECKPOINTS)
    location = f"s3a://tables/{uuid4().hex}"
    warehouse = Warehouse(spark, location, registered=False)
    landing = tmp_path / "landing"
    for number in range(ROUNDS):
        land_minutes(landing, number, number + 1)
        with proxy.count() as ingested:
            assert len(list(ingest(warehouse, connector(landing)))) == 1
        with proxy.count() as run:
            assert incremental(warehouse, BY_MINUTE) is not None
        # The first ones create the tables.
        if number > 0:
            # One of the requests may be the renewal of the ingest's lease.
            assert len(ingested) <= 25, summarize_requests(ingested)
            assert len(run) <= 40, summarize_requests(run)

    settings = Settings(warehouse=location, database="tidemark")
    snapshot = Snapshot(settings, [BY_MINUTE])
    with proxy.count() as status:
        assert snapshot.read_source(SOURCE).arrivals == ROUNDS
        assert snapshot.read_asset(BY_MINUTE).behind == 0
    assert len(status) <= 3 * TABLES, summarize_requests(status)

    now = 0.0
    clock = SimpleNamespace(time=time.time, monotonic=lambda: now, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(tables, "time", clock)
    monkeypatch.setattr(record_store, "time", clock)
    page = Snapshot(settings, [BY_MINUTE], pause_factor=tables.PAUSE_FACTOR)
    for minute in range(10):
        with proxy.count() as looks:
            for _ in range(12):
                now += 5.0
                page.read_source(SOURCE)
                page.read_asset(BY_MINUTE)
                assert foreground.list_commands(settings) == []
        # At first, the pauses are short.
        if minute > 3:
            assert len(looks) <= TABLES + LISTINGS, summarize_requests(looks)
