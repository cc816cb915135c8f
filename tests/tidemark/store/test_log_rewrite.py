"""Tests of the record of a rewrite of an event log, for which new runs wait, without an engine."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from helpers.data.support import READINGS
from tidemark.base.errors import ConflictError
from tidemark.engine.process import ignore_progress
from tidemark.store import log_rewrite, operations
from tidemark.store.integrity import table_check
from tidemark.store.log_rewrite import hold_rewrite
from tidemark.store.operations import Kind
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest_record import lock_ingest

OWNER = READINGS.log_table.owner
HOLD = """
import sys, time
from tidemark.engine.process import ignore_progress
from tidemark.store.log_rewrite import hold_rewrite
from tidemark.store.warehouse import Warehouse
from helpers.data.support import READINGS

with hold_rewrite(Warehouse(None, sys.argv[1], registered=False), READINGS, ignore_progress):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Warehouse:
    """Return a warehouse without an engine, in which an erasure has begun."""
    found = Warehouse(cast("Any", None), str(tmp_path), registered=False)
    operations.record_begin(found, Kind.ERASE, OWNER)
    return found


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rewrite, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(log_rewrite, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(log_rewrite, "_reported", set[str]())


@contextmanager
def rewriting(store: Warehouse) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that rewrites the log; kill it at the end."""
    words = [sys.executable, "-c", HOLD, store.location]
    tests = str(Path(__file__).parents[2])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tests) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def run(store: Warehouse) -> None:
    table_check.demand_intact(store, READINGS)


def ingest(store: Warehouse) -> None:
    with lock_ingest(store, READINGS):
        pass


def rewrite(store: Warehouse) -> None:
    with hold_rewrite(store, READINGS, ignore_progress):
        # The runs of the rewrite itself do not wait for it.
        run(store)


@pytest.mark.parametrize("work", [run, ingest, rewrite])
def test_runs_ingests_and_other_rewrites_wait(
    store: Warehouse, work: Callable[[Warehouse], None]
) -> None:
    order = list[str]()
    thread = threading.Thread(target=lambda: (work(store), order.append("work")))
    with hold_rewrite(store, READINGS, ignore_progress):
        thread.start()
        time.sleep(0.3)
        order.append("rewrite")
    thread.join()
    assert order == ["rewrite", "work"]


def test_runs_of_other_sources_do_not_wait(store: Warehouse) -> None:
    with hold_rewrite(store, replace(READINGS, name="clicks"), ignore_progress):
        thread = threading.Thread(target=lambda: run(store))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_a_killed_erasure_does_not_block_runs_and_they_report_it_once(
    store: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    with rewriting(store) as erasure:
        threading.Timer(0.5, erasure.kill).start()
        run(store)
        assert erasure.wait() != 0
    run(store)
    waiting, interrupted = (record.getMessage() for record in caplog.records)
    assert waiting.startswith(f"Waiting for process {erasure.pid}, which erases events of source")
    assert "`tidemark erase readings --where …`, begun at 2" in interrupted
    assert "Run it again" in interrupted

    operations.record_end(store, Kind.ERASE, OWNER)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        run(store)
    assert caplog.records == []


@pytest.mark.parametrize("work", [run, ingest, rewrite])
def test_runs_ingests_and_rewrites_give_up_after_a_long_rewrite(
    store: Warehouse, monkeypatch: pytest.MonkeyPatch, work: Callable[[Warehouse], None]
) -> None:
    with rewriting(store) as erasure:
        monkeypatch.setattr(log_rewrite, "MAX_SECONDS", 0.0)
        with pytest.raises(ConflictError, match=f"process {erasure.pid}.*Retry") as error:
            work(store)
        assert error.value.retriable
    work(store)
