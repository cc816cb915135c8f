"""An event with an invalid timestamp is not lost, although none of its windows would ever close.
For example, a source that sends milliseconds where the engine expects seconds has dates around the
year 55840."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0
from helpers.suite.nightly import NIGHTLY
from tidemark.base.instants import EARLIEST, LATEST
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Session, Tumbling, Window
from tidemark.run import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.ingest.ingest import end_source, ingest
from tidemark_streaming.ingest.row_summary import is_plain, summarize_rows
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

FAR = T0 * 1000
TIMES = [
    [T0, FAR],
    [T0 + MINUTE, None, EARLIEST - 1],
    [FAR + 1, T0 + 2 * MINUTE, LATEST],
    [EARLIEST],
]


def brought(warehouse: Warehouse) -> None:
    arrivals = [
        ScenarioArrival(tuple((time, "a", 1.0, None) for time in times), T0 + (n + 1) * MINUTE)
        for n, times in enumerate(TIMES)
    ]
    list(ingest(warehouse, MemoryConnector(READINGS, arrivals), batch=2))
    end_source(warehouse, READINGS)


@pytest.mark.parametrize(
    "window", [Tumbling("1 day"), pytest.param(Session("10 seconds"), marks=NIGHTLY)]
)
def test_events_with_an_invalid_timestamp_are_only_in_the_late_table(
    warehouse: Warehouse, window: Window
) -> None:
    brought(warehouse)
    # Two invalid timestamps are not duplicates of each other, in any runs.
    asset = replace(
        PER_MINUTE, window=window, deduplicate=Deduplicate(("sensor",), within="1 second")
    )
    timeline = Log(warehouse, READINGS).read_timeline()
    assert [a.max_event_time for a in timeline[:3]] == TIMES[0][:1] + TIMES[1][:1] + TIMES[2][1:2]
    assert timeline[3].min_event_time == EARLIEST
    assert timeline[3].before == T0 + MINUTE
    while incremental(warehouse, asset, limit=1):
        pass
    facts = backfill(warehouse, replace(asset, name="again"))
    assert (facts.no_event_time, facts.too_late, facts.duplicate) == (5, 1, 0)
    for name in (asset.name, "again"):
        rows = warehouse.read_frame(name).agg(F.sum("events"), F.max("window_end")).collect()[0]
        assert (rows[0], rows[1].year) == (3, 2023)
        late = warehouse.read_frame(f"{name}_late").groupBy("reason").count().collect()
        assert dict(late) == {"invalid_timestamp": 4, "no_event_time": 1, "too_late": 1}
    assert check_parity(warehouse, asset).is_equal


@pytest.mark.parametrize("skew", [None, "1 hour"])
def test_memory_and_engine_observe_the_same_event_times(
    warehouse: Warehouse, skew: str | None
) -> None:
    source = replace(READINGS, max_future_skew=skew)
    times = [time for each in TIMES for time in each]
    rows = pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            CHUNK: pa.array([n for n, each in enumerate(TIMES) for _ in each], pa.int32()),
        }
    )
    chunks = [Chunk(str(n), T0 + n * MINUTE) for n in range(len(TIMES))]
    assert is_plain(source, rows)
    found = summarize_rows(source, rows, chunks, warehouse.spark)
    spans = [(f.min_event_time, f.max_event_time) for _, f in sorted(found.items())]
    newest = [T0, T0 + MINUTE, T0 + 2 * MINUTE, EARLIEST]
    assert spans == [(time, time) for time in newest]
    engine = warehouse.spark.createDataFrame(
        list(zip(times, rows[CHUNK].to_pylist(), strict=True)), f"t BIGINT, {CHUNK} INT"
    )
    engine = engine.select(F.timestamp_micros("t").alias("ts"), CHUNK)
    assert summarize_rows(source, engine, chunks, warehouse.spark) == found
