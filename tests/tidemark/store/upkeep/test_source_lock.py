"""Tests of the lock between the runs of a source and its erasures, without an engine."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.base.errors import ConflictError
from tidemark.define.source import Source
from tidemark.store.upkeep import erasures, source_lock
from tidemark.store.upkeep.source_lock import lock_source, share_source
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest_record import lock_ingest

Lock = Callable[[Warehouse, Source], AbstractContextManager[None]]
OTHER: Any = SimpleNamespace(name="clicks")
SOURCE: Any = SimpleNamespace(name="orders")
HOLD = """
import sys, time
from types import SimpleNamespace
from tidemark.store.upkeep import source_lock
warehouse = SimpleNamespace(location=sys.argv[1], database="d", exists=lambda table: False)
with getattr(source_lock, sys.argv[2])(warehouse, SimpleNamespace(name="orders")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    found: Any = SimpleNamespace(location=str(tmp_path), database="d", exists=lambda _: False)
    return found


@contextmanager
def held_by_thread(warehouse: Warehouse, lock: Lock) -> Iterator[None]:
    """Hold a lock in another thread."""
    held, ending = threading.Event(), threading.Event()

    def hold() -> None:
        with lock(warehouse, SOURCE):
            held.set()
            ending.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    ending.set()
    thread.join()


@contextmanager
def process_with(warehouse: Warehouse, lock: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds a lock; kill it at the end."""
    words = [sys.executable, "-c", HOLD, warehouse.location, lock]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        yield held
        held.kill()


def test_runs_share_a_source_and_an_erasure_waits_for_them(warehouse: Warehouse) -> None:
    order = list[str]()
    sharing, ending = threading.Event(), threading.Event()

    def run() -> None:
        with share_source(warehouse, SOURCE):
            sharing.set()
            ending.wait()
            order.append("run")

    def erase() -> None:
        # The runs of an erasure itself do not wait for it.
        with lock_source(warehouse, SOURCE, order.append), share_source(warehouse, SOURCE):
            order.append("erasure")

    def run_later() -> None:
        with share_source(warehouse, SOURCE):
            order.append("later run")

    first, erasing, later = (threading.Thread(target=t) for t in (run, erase, run_later))
    first.start()
    sharing.wait()
    with share_source(warehouse, SOURCE), share_source(warehouse, SOURCE):
        pass
    erasing.start()
    while not order:
        time.sleep(0.01)
    # It must not overtake the erasure, and runs of other sources go on.
    later.start()
    with share_source(warehouse, OTHER):
        pass
    time.sleep(0.3)
    ending.set()
    for thread in (first, erasing, later):
        thread.join()
    assert order == ["wait for the runs of orders", "run", "erasure", "later run"]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 8)), max_size=12))
def test_nothing_overlaps_an_erasure(plan: list[tuple[bool, int, int]]) -> None:
    """Each thread erases or runs, after some milliseconds and for some milliseconds."""
    guard = threading.Lock()
    active, most = Counter[bool](), list[Counter[bool]]()

    def work(erases: bool, after: int, lasts: int) -> None:
        time.sleep(after / 1000)
        with (lock_source if erases else share_source)(found, SOURCE):
            with guard:
                active[erases] += 1
                most.append(active.copy())
            time.sleep(lasts / 1000)
            with guard:
                active[erases] -= 1

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_lock, "_POLL_SECONDS", 0.001)
        found: Any = SimpleNamespace(location=folder, database="d", exists=lambda _: False)
        threads = [threading.Thread(target=work, args=each) for each in plan]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(most) == len(plan)
    assert all(at[True] + bool(at[False]) <= 1 for at in most)


def test_a_killed_run_does_not_block_an_erasure(warehouse: Warehouse) -> None:
    with process_with(warehouse, "share_source") as run:
        threading.Timer(0.5, run.kill).start()
        with lock_source(warehouse, SOURCE):
            assert run.wait() != 0


def test_a_killed_erasure_does_not_block_runs_and_they_report_it(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_lock, "REPORT_SECONDS", 0.0)
    with process_with(warehouse, "lock_source") as erasure:
        threading.Timer(0.5, erasure.kill).start()
        with share_source(warehouse, SOURCE):
            assert erasure.wait() != 0
    with share_source(warehouse, SOURCE):
        pass
    waiting, interrupted = (record.getMessage() for record in caplog.records)
    by = f"`tidemark erase orders`, process {erasure.pid}, started at 2"
    of = f"the erasure of source 'orders' ({by}"
    assert waiting.startswith(f"Waiting for {of}")
    assert interrupted.startswith(f"T{of[1:]}")
    assert "Run the same command again" in interrupted

    # The next erasure finishes it.
    with lock_source(warehouse, SOURCE):
        pass
    monkeypatch.setattr(source_lock, "_reported", set[Any]())
    caplog.clear()
    with share_source(warehouse, SOURCE):
        assert caplog.records == []


@pytest.mark.parametrize("unfinished", [False, True])
def test_an_erasure_with_an_error_is_reported_only_if_it_has_begun(
    warehouse: Warehouse,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    unfinished: bool,
) -> None:
    monkeypatch.setattr(erasures, "find_unfinished", lambda *_: ["one"] * unfinished)
    with pytest.raises(KeyboardInterrupt), lock_source(warehouse, SOURCE):
        raise KeyboardInterrupt
    with caplog.at_level(logging.WARNING), share_source(warehouse, SOURCE):
        assert len(caplog.records) == unfinished


@pytest.mark.parametrize("wait", [share_source, lock_ingest, lock_source])
def test_runs_and_ingests_give_up_after_a_long_erasure(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, wait: Lock
) -> None:
    monkeypatch.setattr(source_lock, "MAX_ERASURE_SECONDS", 0.0)
    with (
        held_by_thread(warehouse, lock_source),
        pytest.raises(ConflictError, match=f"process {os.getpid()}, started.*Retry") as one,
        wait(warehouse, SOURCE),
    ):
        raise AssertionError("it must wait")
    assert one.value.retriable
    with wait(warehouse, SOURCE):
        pass


def test_an_erasure_gives_up_if_a_run_takes_too_long(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_lock, "MAX_RUN_SECONDS", 0.2)
    with held_by_thread(warehouse, share_source):
        with (
            pytest.raises(ConflictError, match=r"Nothing was erased: .* 'orders' did not end"),
            lock_source(warehouse, SOURCE),
        ):
            raise AssertionError("it must wait")
        # Runs can begin again.
        with share_source(warehouse, SOURCE):
            pass
