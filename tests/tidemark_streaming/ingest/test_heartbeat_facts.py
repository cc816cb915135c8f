"""The watermarks of recorded heartbeats: the same in any division into commits and processes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.define.source import Source
from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    MonotonicTimestamps,
    PerPartition,
    Watermark,
)
from tidemark.store.event_log.arrival import Arrival, read_arrivals, timeline_rows
from tidemark_streaming.base import kafka_position
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.base.position import parse_with_text
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest.accepted_losses import skipped_losses, with_losses, without_losses
from tidemark_streaming.ingest.arrival_watermarks import to_arrivals
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.snapshot.history import reprocessed_letters

SECOND = 1_000_000


@dataclass(frozen=True)
class Step:
    """An arrival: some seconds after the one before it.

    Args:
        times: event times in seconds, one for each partition; none for an arrival without rows.
        silent: for a heartbeat, the silence so far, in seconds.
    """

    after: int
    times: tuple[int, ...] = ()
    silent: int | None = None


STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.integers(0, 3), st.lists(st.integers(0, 30), max_size=2).map(tuple)),
        st.builds(Step, st.integers(0, 9), silent=st.integers(0, 9)),
    ),
    max_size=12,
)
BOUND, IDLE = st.integers(0, 4), st.integers(1, 6)


def chunks_and_facts(steps: Sequence[Step], by: bool) -> tuple[list[Chunk], list[ChunkSummary]]:
    clock, chunks, facts = 0, list[Chunk](), list[ChunkSummary]()
    for step in steps:
        clock += step.after * SECOND
        since = None if step.silent is None else clock - step.silent * SECOND
        chunks.append(Chunk("{}", clock, silent_since=since))
        pairs = [(str(n), str(t * SECOND)) for n, t in enumerate(step.times)]
        newest = str(max(step.times) * SECOND) if step.times else None
        observed = (json.dumps(pairs) if pairs else None) if by else newest
        facts.append(ChunkSummary(rows=len(step.times), observed=observed))
    return chunks, facts


def arrivals(strategy: Watermark, steps: Sequence[Step], cuts: Sequence[int]) -> list[Arrival]:
    """Return the arrivals as they are recorded, if the ingest commits and restarts at the cuts."""
    source = Source(
        name="s",
        columns={"at": "TIMESTAMP", "part": "STRING"},
        event_time="at",
        watermark=strategy,
        heartbeat="1 second",
    )
    chunks, facts = chunks_and_facts(steps, by=strategy.group_column is not None)
    found, start = list[Arrival](), 0
    for end in [*sorted({c for c in cuts if c < len(steps)}), len(steps)]:
        # Another process knows only what the timeline has.
        known = read_arrivals(timeline_rows(found)) if found else []
        some = dict(enumerate(facts[start:end]))
        last = known[-1] if known else None
        found = [*known, *to_arrivals(source, last, chunks[start:end], some, "{}", 1)]
        start = end
    return found


def expected(steps: Sequence[Step], bound: int, idle: int | None) -> list[int | None]:
    """Return the watermarks of one partition, in seconds, as the documentation defines them."""
    clock, watermark, found = 0, None, list[int | None]()
    for step in steps:
        clock += step.after
        moves = [time - bound for time in step.times]
        if watermark is not None and None not in (step.silent, idle) and step.silent >= idle:  # pyright: ignore[reportOperatorIssue]
            moves.append(clock - bound)
        known = moves if watermark is None else [watermark, *moves]
        watermark = max(known, default=None)
        found.append(watermark)
    return found


few = settings(max_examples=300, deadline=None, derandomize=True, database=None)


@few
@given(STEPS, BOUND, st.one_of(st.none(), IDLE), st.lists(st.integers(1, 11), max_size=4))
def test_heartbeats_move_the_watermark_as_documented_in_any_cut(
    steps: list[Step], bound: int, idle: int | None, cuts: list[int]
) -> None:
    length = None if idle is None else f"{idle} seconds"
    cases: list[tuple[Watermark, int]] = [
        (BoundedOutOfOrderness(f"{bound} seconds", idle=length), bound),
        (MonotonicTimestamps(idle=length), 0),
    ]
    for strategy, late in cases:
        found = arrivals(strategy, steps, cuts)
        watermarks = [None if a.after is None else a.after // SECOND for a in found]
        assert watermarks == expected(steps, late, idle)
        assert [a.before for a in found] == [None, *(a.after for a in found[:-1])][: len(found)]


@few
@given(STEPS, BOUND, IDLE, st.lists(st.integers(1, 11), max_size=4))
def test_partitions_have_the_same_watermarks_in_any_cut(
    steps: list[Step], bound: int, idle: int, cuts: list[int]
) -> None:
    strategy = PerPartition("part", f"{bound} seconds", idle=f"{idle} seconds")
    found = arrivals(strategy, steps, cuts)
    assert found == arrivals(strategy, steps, ())
    clock = 0
    for step, arrival in zip(steps, found, strict=True):
        clock += step.after
        if arrival.before is not None and step.silent is not None and step.silent >= idle:
            assert arrival.after is not None
            assert arrival.after >= (clock - bound) * SECOND


@pytest.mark.parametrize("name", ["skipped", "replayed", "no-topic", "file", "table"])
def test_no_name_of_a_topic_means_something_else_in_a_position(name: str) -> None:
    position = kafka_position.to_json({name: Topic("id", {0: (3, 7)}), "t": Topic("id", {})})
    assert (skipped_losses(position), [*reprocessed_letters(position)]) == ([], [])
    assert parse_with_text(position, name) is None
    lost = with_losses(position, ["offsets 0 to 2"])
    assert skipped_losses(lost) == ["offsets 0 to 2"]
    assert kafka_position.parse_position(lost) == kafka_position.parse_position(position)
    assert json.loads(without_losses(lost)) == json.loads(position)


def test_a_heartbeat_repeats_a_position_without_its_losses() -> None:
    position = json.dumps({"table": "t", "version": 7})
    lost = with_losses(position, ["versions 3 to 5 (deleted)"])
    assert skipped_losses(lost)
    assert without_losses(lost) == position
    # The position of a custom connector may be any JSON.
    for other in ("7", '"x"', "null", position):
        assert without_losses(other) == other
