"""Tests of the number of requests to an object store that ingests, runs and readers make."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
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

STORED_TABLES = 11
"""The tables of the source and the asset, and those that all assets share."""

FOLDERS = 2
"""The database, and the records of workers."""

LISTINGS = 2
"""The listings of the workers' records in a minute."""

TIDEMARK = Path(sys.executable).with_name("tidemark")


def show_status(location: str, folder: Path) -> None:
    """Run `tidemark status` in a process that has no copies of transaction logs."""
    domain = folder / "stored_readings"
    domain.mkdir()
    (domain / "__init__.py").touch()
    (domain / "sources.py").write_text("from helpers.data.landing import SOURCE")
    (domain / "transforms.py").write_text("from helpers.data.landing import BY_MINUTE")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}",
        "TIDEMARK_HOME": str(folder / "home"),
        "TIDEMARK_WAREHOUSE": location,
        "TIDEMARK_DATABASE": "tidemark",
        "TIDEMARK_DOMAINS": "stored_readings",
    }
    shown = subprocess.run(
        [TIDEMARK, "status", "--json"], env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    status = json.loads(shown.stdout)
    assert [source["arrivals"] for source in status["sources"]] == [ROUNDS]
    assert status["findings"] == []


@pytest.fixture
def proxy() -> Iterator[StoreProxy]:
    with serve_bucket(), serve_proxy() as served:
        yield served


# `tidemark status` runs in a process of its own.
@pytest.mark.slow
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
        assert len(run) <= 40, summarize_requests(run)
        # The first ingest tests the store, too.
        if number > 0:
            # One of the requests may be the renewal of the ingest's lease.
            assert len(ingested) <= 25, summarize_requests(ingested)

    settings = Settings(warehouse=location, database="tidemark")
    snapshot = Snapshot(settings, [BY_MINUTE])
    with proxy.count() as status:
        assert snapshot.read_source(SOURCE).arrivals == ROUNDS
        assert snapshot.read_asset(BY_MINUTE).behind == 0
    assert len(status) <= 3 * TABLES, summarize_requests(status)

    with proxy.count() as counted:
        show_status(location, tmp_path)
    listings = Counter(request.key for request in counted if request.kind == "LIST")
    read_files = [request.key for request in counted if request.kind == "GET"]
    # The second listing of a table is that of the check for damage.
    assert max(listings.values()) <= 2, summarize_requests(counted)
    assert len(listings) <= STORED_TABLES + FOLDERS, summarize_requests(counted)
    assert len(read_files) == len(set(read_files)), summarize_requests(counted)

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
