"""An arrival's processing time is never in the future and never decreases. No engine is needed:
pending arrivals are read from files and from the transaction log."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.landing import HEADER, SOURCE, connector, land
from tidemark.base.instants import INFINITY, parse_instant
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import CLOCK_SLACK, Chunk, processing_time
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.ingest.future_watermark import FAR, FutureWatermark, is_far_ahead

FAR_FUTURE = parse_instant("2099-01-01")
INSTANTS = st.integers(-(1 << 62), 1 << 62)


def now() -> int:
    return time.time_ns() // 1000


def arrived(chunk: Chunk, number: int) -> Arrival:
    return Arrival(number, chunk.arrived_at, None, None, 0, None, None, 0, chunk.position)


@given(st.lists(INSTANTS, max_size=8))
def test_a_processing_time_is_neither_in_the_future_nor_decreasing(timestamps: list[int]) -> None:
    before: int | None = None
    for timestamp in timestamps:
        found = processing_time(timestamp, before)
        assert found <= now() + CLOCK_SLACK
        assert before is None or found >= before
        assert found in (timestamp, before) or found >= now()
        before = found


def test_a_file_from_the_future_does_not_advance_the_clock(tmp_path: Path) -> None:
    path = land(tmp_path, "a.csv", HEADER, 0)
    os.utime(path, (FAR_FUTURE / 1e6, FAR_FUTURE / 1e6))
    [chunk] = connector(tmp_path).list_pending([])
    assert chunk.arrived_at <= now() + CLOCK_SLACK
    (tmp_path / "b.csv").write_text(HEADER)
    [later] = connector(tmp_path).list_pending([arrived(chunk, 0)])
    assert later.arrived_at <= now() + CLOCK_SLACK


def test_a_commit_from_the_future_does_not_advance_the_clock(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "sensor": ["a"], "value": [1]})
    write_deltalake(tmp_path / "t", rows.cast(rows.schema.set(2, pa.field("value", pa.int32()))))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    stamp = text.partition('"timestamp":')[2].partition(",")[0].partition("}")[0]
    log.write_text(text.replace(f'"timestamp":{stamp}', f'"timestamp":{FAR_FUTURE // 1000}'))
    [chunk] = DeltaConnector(SOURCE, str(tmp_path / "t")).list_pending([])
    assert chunk.arrived_at <= now() + CLOCK_SLACK


def test_only_a_watermark_far_ahead_of_the_clock_is_a_warning() -> None:
    assert not is_far_ahead(None, 0)
    assert not is_far_ahead(INFINITY, 0)
    assert not is_far_ahead(FAR, 0)
    assert is_far_ahead(FAR + 1, 0)
    found = FutureWatermark("orders", 7, FAR * 3, 0, FAR * 4, "a.csv#2")
    assert str(found) == (
        "The watermark of 'orders' is 1970-01-01T03:00:00Z, 3.0 hours ahead of the processing "
        "clock: arrival 7 moved it there, with an event dated 1970-01-01T04:00:00Z (a.csv#2). "
        "Events before it are late. If that date is wrong, set max_future_skew in the source, then "
        "run `tidemark watermark orders --lower`."
    )
    assert "by an event" not in str(replace(found, event_time=None, read_from=None))
