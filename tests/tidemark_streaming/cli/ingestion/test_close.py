"""`tidemark close`: its confirmation, its refusals, and that all windows close."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.support import READINGS, ingest, some_arrivals
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.cli.processing.stream import explain_missing_ingest
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import follow_source
from tidemark_streaming.ingest.ingest_record import lock_ingest, record_poll
from tidemark_streaming.snapshot.snapshot import Snapshot

DOMAIN = """
from dataclasses import replace
from helpers.data import support
from tidemark import Global
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector

SOURCE = support.READINGS
readings = Ingestion(source=SOURCE, connector=lambda folder: FileConnector(SOURCE, folder))
ever = replace(support.PER_MINUTE, name="ever", window=Global())
"""
ARRIVALS = some_arrivals(count=3, size=20)


@pytest.fixture(scope="module")
def store(
    here: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    """Yield the warehouse of a domain with an asset that has one global window."""
    folder, name = tmp_path_factory.mktemp("domain"), f"ending_{uuid4().hex[:8]}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "connectors.py").write_text(DOMAIN)
    (folder / name / "transforms.py").write_text(f"from {name}.connectors import ever")
    (folder / name / "sources.py").write_text("from helpers.data.support import READINGS")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("TIDEMARK_DOMAINS", name)
        yield Warehouse(spark, here.warehouse, here.database, registered=False)


def said(*arguments: str, code: int = 0) -> str:
    """Return a command's messages on stderr."""
    result = call(*arguments)
    assert result.exit_code == code, result.stderr
    return " ".join(result.stderr.split())


def test_ending_a_source_needs_arrivals_confirmation_and_no_ingest(
    store: Warehouse, here: Settings
) -> None:
    assert "Nothing has arrived for 'readings' yet" in said("close", "readings", code=2)
    ingest(store, READINGS, ARRIVALS, ends=False)
    assert "pass --yes" in said("close", "readings", code=2)
    assert "Nothing ingests 'readings' at present" in (
        explain_missing_ingest(here, "readings") or ""
    )
    with lock_ingest(store, READINGS):
        assert explain_missing_ingest(here, "readings") is None
        assert "is being ingested already, by process" in said("close", "readings", "--yes", code=2)
    assert explain_missing_ingest(here, "readings") is not None
    # A sensor that polls, on any machine, will ingest.
    record_poll(here, "readings")
    assert explain_missing_ingest(here, "readings") is None
    assert Snapshot(here).newest_arrival("readings") == 2


def test_all_windows_close_when_the_source_ends(store: Warehouse, here: Settings) -> None:
    assert call("run", "ever").exit_code == 0
    before = Snapshot(here).tables.read("ever", ["n"])
    assert before is None or before.num_rows == 0
    told = json.loads(call("close", "readings", "--yes", "--json").stdout)
    assert told == {"source": "readings", "arrival": 3, "watermark": "+infinity"}
    assert call("run", "ever").exit_code == 0
    rows = Snapshot(here).tables.read("ever", ["n", "final"])
    assert rows is not None
    assert all(rows["final"].to_pylist())
    events = [e for arrival in ARRIVALS for e in arrival if e.ts is not None]
    assert sum(rows["n"].to_pylist()) == len(events)


def test_commands_report_a_source_that_has_ended(store: Warehouse, here: Settings) -> None:
    (Path(here.landing) / "readings").mkdir()
    assert "has already ended, with arrival 3" in said("close", "readings", "--yes")
    assert "'readings' has ended with arrival 3: it accepts no more" in said("ingest", "readings")
    # Without the end, `follow` would never return.
    assert (
        list(follow_source(store, FileConnector(READINGS, Path(here.landing) / "readings"))) == []
    )
    try:
        assert "has ended with arrival 3: no more events will arrive" in said(
            "stream", "ever", "--detach"
        )
    finally:
        said("stream", "ever", "--stop")
