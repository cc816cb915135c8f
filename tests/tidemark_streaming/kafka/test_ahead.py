"""The prefetcher returns the same records as a direct read, and reads one request at a time."""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from threading import Event, Lock, Timer, current_thread, get_ident, main_thread

import pytest

from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.processes.commands import handlers_kept
from helpers.suite.interruption import signals_expected
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.kafka.prefetch import Prefetcher


class Slow:
    """A slow reader that returns the sum of its positions once `may` is set, and records its
    reads."""

    def __init__(self) -> None:
        self.may, self.asked = Event(), Event()
        self.reads: list[tuple[str, bool]] = []
        self._one = Lock()

    @property
    def reading(self) -> bool:
        return self._one.locked()

    def __call__(self, positions: Sequence[str], enough: Event) -> int:
        assert self._one.acquire(blocking=False), "two are read at once"
        try:
            self.reads.append(("".join(positions), current_thread() is main_thread()))
            self.asked.set()
            while not self.may.wait(0.01):
                if enough.is_set():
                    raise CancelledError
            if "!" in positions:
                raise ValueError("gone")
            return sum(map(int, positions))
        finally:
            self._one.release()


def test_a_prefetched_read_runs_once_in_another_thread() -> None:
    slow = Slow()
    ahead = Prefetcher(slow)
    ahead.begin_read(["1", "2"])
    assert slow.asked.wait(60)
    slow.may.set()
    assert ahead.take_result(["1", "2"]) == 3
    assert slow.reads == [("12", False)]
    assert ahead.take_result(["1", "2"]) == 3
    assert slow.reads[1:] == [("12", True)]


@pytest.mark.parametrize("then", [["4"], []])
def test_a_prefetch_that_is_not_requested_is_cancelled(then: list[str]) -> None:
    slow = Slow()
    ahead = Prefetcher(slow)
    ahead.begin_read(["1"])
    assert slow.asked.wait(60)
    ahead.begin_read(then)
    slow.may.set()
    assert ahead.take_result(["3"]) == 3
    assert slow.reads[0] == ("1", False)
    assert slow.reads[-1] == ("3", True)


def test_a_failed_prefetch_raises_when_its_result_is_taken() -> None:
    slow = Slow()
    slow.may.set()
    ahead = Prefetcher(slow)
    ahead.begin_read(["!"])
    with pytest.raises(ValueError, match="gone"):
        ahead.take_result(["!"])
    assert ahead.take_result(["5"]) == 5


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: parallel test processes otherwise ignore it."""
    with handlers_kept(), signals_expected():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_prefetch_is_cancelled() -> None:
    slow = Slow()
    ahead = Prefetcher(slow)
    ahead.begin_read(["1"])
    assert slow.asked.wait(60)

    def interrupted() -> None:
        # On a busy machine, the signal may come as soon as `take_result` starts.
        Timer(0.2, signal.pthread_kill, (get_ident(), signal.SIGINT)).start()
        ahead.take_result(["1"])

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    ahead.begin_read([])
    assert not slow.reading


def test_the_next_records_are_read_while_earlier_ones_are_ingested(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create(partitions=2)
    topics.send(name, clicks(*range(30)), 0)
    topics.send(name, clicks(*range(30, 60)), 1)
    read: list[str] = []
    usual = KafkaConnector._read_in_memory

    def noted(connector: KafkaConnector, positions: Sequence[str], enough: Event) -> object:
        read.append(current_thread().name)
        return usual(connector, positions, enough)

    monkeypatch.setattr(KafkaConnector, "_read_in_memory", noted)
    commits = list(ingest(warehouse, topics.connector(name, rows=7), batch=2))
    assert len(commits) == 5
    assert read[0] == main_thread().name
    assert {each.partition("_")[0] for each in read[1:]} == {"kafka prefetch"}
    rows = warehouse.read_frame(CLICKS.log_table).orderBy("n").collect()
    assert [row.n for row in rows] == [*range(60)]
