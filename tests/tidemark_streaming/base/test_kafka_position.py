"""Splitting a backlog: each chunk has a share of each partition, and a partition with pending
records is not idle."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.kafka.topics import CLICKS
from tidemark.base.errors import DefinitionError
from tidemark.define.watermarks import Perfect, PerPartition
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.steps import Step, TakenArrival
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.base.kafka_position import Position, Topic
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest.arrival_watermarks import to_arrivals
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.kafka import KafkaConnector, losses
from tidemark_streaming.kafka.play import PlayedConnector

MINUTE = 60_000_000
IMPATIENT = replace(
    CLICKS, watermark=PerPartition("kafka_topic_partition", "10 seconds", idle="1 minute")
)


def lengths(pieces: list[Position]) -> list[list[int]]:
    """Return the number of offsets per partition in each chunk."""
    return [[end - start for start, end in piece["t"].offsets.values()] for piece in pieces]


def of(*ends: int, start: int = 0) -> Position:
    return {"t": Topic("id", {n: (start, end) for n, end in enumerate(ends)})}


def test_the_first_chunk_has_offsets_of_each_nonempty_partition() -> None:
    pieces = position.split_ranges(of(600, 10, 0, 1), 200)
    assert lengths(pieces) == [[150, 3, 0, 1], [150, 2, 0, 0], [150, 3, 0, 0], [150, 2, 0, 0]]


def test_the_chunks_cover_the_whole_backlog() -> None:
    chance = random.Random(5)
    for _ in range(200):
        whole = of(*(chance.randrange(3, 40) for _ in range(4)), start=3)
        pieces = position.split_ranges(whole, chance.randrange(1, 50))
        for name, partition, ranges in position.ranges_by_partition(pieces):
            start, end = whole[name].offsets[partition]
            assert [start, *(e for _, e in ranges)] == [*(s for s, _ in ranges), end]
            assert ranges[0][1] > start or start == end


@pytest.mark.parametrize("by", ["kafka_topic_partition", "kafka_partition"])
def test_chunks_list_the_partitions_with_pending_records(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replace(CLICKS, watermark=PerPartition(by, "10 seconds"))
    connector = KafkaConnector(source, ["t"], rows=5)
    monkeypatch.setattr(
        "tidemark_streaming.kafka.cluster.Cluster.read_topics", lambda *_: of(10, 2, 0)
    )
    chunks = connector.list_pending([])
    prefix = "t-" if by == "kafka_topic_partition" else ""
    told = [[part.removeprefix(prefix) for part in chunk.waiting] for chunk in chunks]
    assert told == [["0", "1"], ["0"], []]


def after(*brought: dict[str, int], waiting: tuple[tuple[str, ...], ...]) -> list[int | None]:
    """Return the watermarks after a pause of ten minutes over a backlog in chunks. Each chunk has
    the newest event times of its partitions, in minutes."""
    first = to_arrivals(
        IMPATIENT, None, [Chunk("{}", 0)], {0: facts({"t-0": 0, "t-1": 0})}, "{}", 1
    )
    chunks = [Chunk("{}", 10 * MINUTE, waiting=parts) for parts in waiting]
    told = dict(enumerate(map(facts, brought)))
    return [a.after for a in to_arrivals(IMPATIENT, first[-1], chunks, told, "{}", 1)]


def facts(newest: dict[str, int]) -> ChunkSummary:
    pairs = ", ".join(f'["{part}", "{time * MINUTE}"]' for part, time in newest.items())
    return ChunkSummary(rows=len(newest), observed=f"[{pairs}]")


BEFORE, LATER = -MINUTE // 6, 9 * MINUTE - MINUTE // 6


def test_a_partition_without_events_in_a_chunk_is_not_idle() -> None:
    """A share may consist of transaction markers or dead letters; the events are in the next
    chunk."""
    both, one = ("t-0", "t-1"), ("t-0",)
    marks = after({"t-0": 8}, {"t-0": 9, "t-1": 9}, waiting=(both, ()))
    assert marks == [BEFORE, LATER]
    # A partition without pending records has been idle for long.
    assert after({"t-0": 9}, waiting=(one,)) == [LATER]


def test_a_partition_without_any_record_does_not_hold_the_watermark() -> None:
    assert after({"t-0": 9, "t-1": 9}, waiting=(("t-2",),)) == [LATER]


def test_pending_partitions_are_ignored_by_strategies_without_idleness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PerPartition, "by_silence", False)
    assert after({"t-0": 9}, {"t-1": 9}, waiting=(("t-0", "t-1"), ())) == [LATER, LATER]


def test_an_empty_span_of_a_recording_repeats_no_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark_streaming.kafka.cluster.Cluster.read_topics", lambda *_: of(5))
    connector = KafkaConnector(replace(CLICKS, watermark=Perfect()), ["t"])
    timeline = to_arrivals(connector.source, None, connector.list_pending([]), {}, "{}", 1)
    assert position.count_offsets(position.parse_position(timeline[-1].position)) == 5
    (chunk,) = PlayedConnector(connector, 7).list_pending(timeline)
    assert (chunk.arrived_at, position.count_offsets(position.parse_position(chunk.position))) == (
        7,
        0,
    )


def test_records_lost_in_a_new_partition_are_reported() -> None:
    grown = {"t": Topic("id", {0: (1, 2), 1: (3, 7), 2: (0, 4)})}
    told = "offsets 0 to 2 of t-1 (3 in all) were deleted by retention or on request"
    assert losses.find_losses(of(2), grown) == [losses.Loss(told, 3)]


def test_a_partition_missing_from_one_poll_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker with stale metadata omits new partitions."""
    connector = KafkaConnector(replace(CLICKS, watermark=Perfect()), ["t"])
    timeline = list[Arrival]()
    brought = list[int]()
    for seen in (of(10, 5), of(12), of(12, 6)):
        monkeypatch.setattr(
            "tidemark_streaming.kafka.cluster.Cluster.read_topics", lambda *_, seen=seen: seen
        )
        chunks = connector.list_pending(timeline)
        brought.append(
            sum(position.count_offsets(position.parse_position(c.position)) for c in chunks)
        )
        last = timeline[-1] if timeline else None
        timeline += to_arrivals(connector.source, last, chunks, {}, "{}", 1)
    assert brought == [15, 2, 1]


def test_a_position_of_a_derived_source_has_no_topic() -> None:
    bases = {"id": TakenArrival(1, "a", "b"), "offsets": TakenArrival(0, "c", "d")}
    step = Step("id", bases)
    assert position.parse_position(step.to_position()) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("id"), inner),
)


@given(JSON)
def test_a_position_of_another_connector_has_no_topics(plain: object) -> None:
    assert not position.parse_position(json.dumps(plain))
    Chunk(json.dumps(plain), 0)


@pytest.mark.parametrize("text", ["", "line 7", "{'through': 7}"])
def test_a_position_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="is not JSON"):
        Chunk(text, 0)
