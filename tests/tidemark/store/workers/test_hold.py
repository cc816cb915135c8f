"""Of several processes that want the same work, one gets it; it keeps it while it lives."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from helpers.data.landing import put
from helpers.processes.clocks import shift_clock
from tidemark.store.workers import hold, record_store
from tidemark.store.workers.hold import OwnedElsewhereError, hold_work, is_free
from tidemark.store.workers.owner import Owner, Process
from tidemark.store.workers.record import SECOND, WorkerRecord
from tidemark.store.workers.record_store import FOLDER, MART, POLL, REWRITE, WorkerRecords

KIND, NAME = "ingest", "orders"
WRITERS, ROUNDS = 8, 5

HOLDING = """
import socket, sys, time
from tidemark.store.workers.hold import hold_work
from tidemark.store.workers.record_store import WorkerRecords

place, machine = sys.argv[1:]
if machine:
    socket.gethostname = lambda: machine
with hold_work(WorkerRecords(place, "shop"), "ingest", "orders"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    return f"{request.getfixturevalue('bucket')}/{uuid4().hex}"


@pytest.fixture
def kept(place: str, monkeypatch: pytest.MonkeyPatch) -> WorkerRecords:
    monkeypatch.setattr(record_store, "_LISTING_SECONDS", 0.0)
    return WorkerRecords(place, "shop")


def elsewhere(lasts: float) -> WorkerRecord:
    """Return the record of an owner on another machine, with a lease of some seconds."""
    process = Process("elsewhere", "another boot", 1, "long ago")
    owner = Owner("process 1 on elsewhere", process, uuid4().hex)
    return WorkerRecord(KIND, NAME).owned_by(owner, int(lasts * SECOND))


def start_holding(place: str, machine: str = "") -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-c", HOLDING, place, machine]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_no_change_is_lost(kept: WorkerRecords, place: str) -> None:
    def count(_: int) -> None:
        own = WorkerRecords(place, "shop")
        for _ in range(ROUNDS):
            own.change_record(
                KIND, NAME, lambda r: replace(r, report={"count": r.report.get("count", 0) + 1})
            )

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(count, range(WRITERS)))
    found = kept.read_record(KIND, NAME)
    assert (found.report["count"], found.revision) == (WRITERS * ROUNDS, WRITERS * ROUNDS)


def test_a_listing_reads_records_of_its_kinds_only(kept: WorkerRecords, place: str) -> None:
    """A warehouse that was copied from a disk has the lock file of that disk."""
    for kind in (KIND, MART, REWRITE):
        kept.change_record(kind, NAME, lambda r: replace(r, report={"count": 1}))
    put(f"{place}/shop/{FOLDER}", ".lock", b"")
    records = WorkerRecords(place, "shop")
    assert [record.kind for record in records.list_records(KIND, POLL)] == [KIND]
    assert records.read_record(MART, NAME).report == {"count": 1}


def test_one_of_many_gets_the_work(place: str) -> None:
    start, is_done = threading.Barrier(WRITERS), threading.Event()

    def take(_: int) -> bool:
        start.wait()
        try:
            with hold_work(WorkerRecords(place, "shop"), KIND, NAME):
                is_done.wait(60)
                return True
        except OwnedElsewhereError:
            return False

    with ThreadPoolExecutor(WRITERS) as pool:
        tries = [pool.submit(take, n) for n in range(WRITERS)]
        while sum(each.done() for each in tries) < WRITERS - 1:
            time.sleep(0.01)
        is_done.set()
        assert sum(each.result() for each in tries) == 1


def test_other_threads_never_see_work_as_free_while_it_is_taken(
    kept: WorkerRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the write of the record and the start of its renewals, it has an owner, too."""
    try_change_record = WorkerRecords.try_change_record
    was_free = list[bool]()

    def look(self: WorkerRecords, *arguments: Any) -> WorkerRecord | None:  # noqa: ANN401
        changed = try_change_record(self, *arguments)
        assert changed is not None
        was_free.append(is_free(changed))
        return changed

    monkeypatch.setattr(WorkerRecords, "try_change_record", look)
    with hold_work(kept, KIND, NAME):
        pass
    assert was_free == [False, True]


def test_work_is_free_once_its_process_was_killed(kept: WorkerRecords, place: str) -> None:
    with start_holding(place) as process:
        assert not kept.read_record(KIND, NAME).is_free
        with pytest.raises(OwnedElsewhereError, match=f"process {process.pid}"):
            hold_work(kept, KIND, NAME).__enter__()
        process.kill()
    with hold_work(kept, KIND, NAME) as held:
        assert kept.read_record(KIND, NAME).owner == held.owner
    assert kept.read_record(KIND, NAME).owner is None


def test_work_of_another_machine_is_free_when_its_lease_ends(
    kept: WorkerRecords,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(hold, "_POLL_SECONDS", 0.05)
    with start_holding(place, "elsewhere") as process:
        process.kill()
    # The lease of the killed process ends now instead of in 40 seconds.
    lasting = kept.read_record(KIND, NAME)
    owner = lasting.owner
    assert owner is not None
    assert not lasting.is_free, "no process here can see whether it has exited"
    kept.change_record(KIND, NAME, lambda record: record.owned_by(owner, SECOND // 2))
    began = time.monotonic()
    with hold_work(kept, KIND, NAME) as held:
        assert time.monotonic() - began >= 0.4
        assert kept.read_record(KIND, NAME).owner == held.owner
    owner_name = f"process {process.pid} on elsewhere"
    assert caplog.messages == [
        f"Waiting for up to 0 seconds: {owner_name} may still work on 'orders'."
    ]


def test_work_of_a_living_process_elsewhere_is_refused(
    kept: WorkerRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "_POLL_SECONDS", 0.05)
    record = kept.change_record(KIND, NAME, lambda _: elsewhere(60))
    owner = record.owner
    assert owner is not None

    def renew() -> None:
        kept.change_record(KIND, NAME, lambda record: record.owned_by(owner, 60 * SECOND))

    threading.Timer(0.5, renew).start()
    with pytest.raises(OwnedElsewhereError, match="process 1 on elsewhere"):
        hold_work(kept, KIND, NAME).__enter__()


def test_leases_are_renewed_until_the_work_is_taken_over(
    kept: WorkerRecords, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hold, "_RENEW_SECONDS", 0.05)
    with hold_work(kept, KIND, NAME) as held:
        first = kept.read_record(KIND, NAME)
        while kept.read_record(KIND, NAME).until == first.until:
            time.sleep(0.02)
        taken = kept.change_record(
            KIND, NAME, lambda r: replace(elsewhere(60), revision=r.revision)
        )
        while "Another process has taken over: ingest of 'orders'." not in caplog.messages:
            time.sleep(0.02)
        assert not held.renew_lease()
    assert kept.read_record(KIND, NAME) == taken, (
        "the hold that was lost must not release the new one"
    )


def test_a_lease_ends_if_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    record = elsewhere(60)
    assert not record.is_free
    shift_clock(monkeypatch, -0.01)
    assert not record.is_free, "the clocks of two machines may differ by half a minute"
    shift_clock(monkeypatch, -1)
    assert record.is_free


def test_work_can_be_taken_again_if_its_release_could_not_be_written(
    kept: WorkerRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: hold.Hold) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, hold_work(kept, KIND, NAME):
        patch.setattr(hold.Hold, "release_work", fail)
        assert not is_free(kept.read_record(KIND, NAME))
    left = kept.read_record(KIND, NAME)
    assert left.owner is not None
    assert is_free(left)
    with hold_work(kept, KIND, NAME):
        assert not is_free(kept.read_record(KIND, NAME))
