"""Recorded arrivals give the same answers as a list of all arrivals, and keep few of them."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from helpers.graph.without_engine import local_warehouse
from tidemark.define.source import Source
from tidemark.define.watermarks import MonotonicTimestamps
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest import recorded_arrivals
from tidemark_streaming.ingest.arrival_watermarks import to_arrivals
from tidemark_streaming.ingest.recorded_arrivals import RecordedArrivals

MOST_KEPT = 5
CLICKS = Source("clicks", {"at": "TIMESTAMP"}, "at", MonotonicTimestamps())


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("TIDEMARK_DURABLE", "false")
    monkeypatch.setattr(recorded_arrivals, "MOST_KEPT", MOST_KEPT)
    opened = Log(local_warehouse(str(tmp_path), "home"), CLICKS)
    opened.open_for_writing()
    return opened


def record(log: Log, count: int) -> list[Arrival]:
    """Record that a number of arrivals without rows came, and return them."""
    last = log.find_last_arrival()
    begin = 0 if last is None else last.arrival + 1
    chunks = [Chunk(f'{{"n": {number}}}', number) for number in range(begin, begin + count)]
    arrivals = to_arrivals(CLICKS, last, chunks, {}, "{}", log.schema_version)
    log.append_arrivals(pa.table({}), arrivals)
    return arrivals


def ask(chance: Random) -> Callable[[Sequence[Arrival]], object]:
    """Return a question that a connector may ask about the arrivals."""
    near, far, step = chance.randint(-30, 30), chance.randint(-30, 30), chance.choice((1, 2, -1))
    questions: list[Callable[[Sequence[Arrival]], object]] = [
        len,
        list,
        bool,
        lambda arrivals: arrivals[-1] if arrivals else None,
        lambda arrivals: arrivals[-1:],
        lambda arrivals: arrivals[near:far:step],
        lambda arrivals: arrivals[near] if -len(arrivals) <= near < len(arrivals) else None,
        lambda arrivals: [*islice(reversed(arrivals), abs(near))],
    ]
    return chance.choice(questions)


@pytest.mark.parametrize("seed", range(4))
def test_answers_equal_those_of_a_list(log: Log, seed: int) -> None:
    chance = Random(seed)
    expected = record(log, chance.randint(1, 20)) if chance.random() < 0.8 else []
    recorded = RecordedArrivals(log)
    for _ in range(25):
        if chance.random() < 0.5:
            arrivals = record(log, chance.randint(1, 6))
            recorded.append(arrivals)
            expected += arrivals
        elif chance.random() < 0.1:
            recorded = RecordedArrivals(log)
        question = ask(chance)
        assert question(recorded) == question(expected)


def test_only_the_newest_arrivals_stay_in_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    record(log, 100)
    read = list[int]()
    timeline = Log.read_timeline

    def count(self: Log, after: int = -1, through: int | None = None) -> list[Arrival]:
        found = timeline(self, after, through)
        read.append(len(found))
        return found

    recorded = RecordedArrivals(log)
    monkeypatch.setattr(Log, "read_timeline", count)
    for _ in range(20):
        recorded.append(record(log, 1))
        assert recorded[-1].arrival == len(recorded) - 1
    assert kept(recorded) < 2 * MOST_KEPT
    read.clear()
    for _ in range(3):
        # A connector that asks for all arrivals in each poll reads the timeline once.
        assert len(list(recorded)) == len(recorded)
        recorded.append(record(log, 1))
    assert max(read) > 100
    assert sum(count > 1 for count in read) == 1
    assert kept(recorded) == 123
    for _ in range(3 * MOST_KEPT):
        recorded.append(record(log, 1))
    assert kept(recorded) < 2 * MOST_KEPT


def kept(recorded: RecordedArrivals) -> int:
    return len(recorded._kept)


def test_an_old_arrival_is_found_in_few_reads(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    record(log, 500)
    recorded = RecordedArrivals(log)
    reads = list[int]()
    timeline = Log.read_timeline

    def count(self: Log, after: int = -1, through: int | None = None) -> list[Arrival]:
        reads.append(after)
        return timeline(self, after, through)

    monkeypatch.setattr(Log, "read_timeline", count)
    assert next(arrival for arrival in reversed(recorded) if arrival.arrival == 2).arrival == 2
    assert len(reads) <= 8
