"""An event dated far ahead of its arrival does not advance the watermark and is not lost (finding
16). Without a bound, one event of the year 2099 makes every later event too late."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0
from helpers.suite.nightly import NIGHTLY
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_instant
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.run import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.ingest.ingest import end_source, ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

FAR = parse_instant("2099-01-01")
TIMES = [
    [T0, T0 + MINUTE],
    [FAR, T0 + 2 * MINUTE],
    # At the allowed skew, and one microsecond beyond it.
    [T0 + 3 * MINUTE + 5_000_000, T0 + 3 * MINUTE + 5_000_001],
    [T0 + 4 * MINUTE, None],
]
BELIEVED = [T0, T0 + MINUTE, T0 + 2 * MINUTE, T0 + 3 * MINUTE + 5_000_000, T0 + 4 * MINUTE]


def brought(warehouse: Warehouse, skew: str | None) -> WindowedTransform:
    """Ingest the events of a source with that bound up to its end and return its asset."""
    source = replace(READINGS, max_future_skew=skew)
    arrivals = [
        ScenarioArrival(tuple((time, "a", 1.0, None) for time in times), T0 + (n + 1) * MINUTE)
        for n, times in enumerate(TIMES)
    ]
    list(ingest(warehouse, MemoryConnector(source, arrivals), batch=2))
    end_source(warehouse, source)
    return replace(PER_MINUTE, source=source)


@pytest.mark.parametrize(
    "window",
    [
        Tumbling("1 minute"),
        pytest.param(Sliding("2 minutes", "1 minute"), marks=NIGHTLY),
        pytest.param(Session("10 seconds"), marks=NIGHTLY),
    ],
)
def test_far_future_events_are_only_in_the_late_table(warehouse: Warehouse, window: Window) -> None:
    asset = replace(brought(warehouse, "5 seconds"), window=window)
    timeline = Log(warehouse, asset.source).read_timeline()
    newest = [T0 + MINUTE, T0 + 2 * MINUTE, BELIEVED[3], T0 + 4 * MINUTE]
    assert [a.after for a in timeline[:4]] == [t - MINUTE for t in newest]
    assert [a.max_event_time for a in timeline[:4]] == newest
    while facts := incremental(warehouse, asset, limit=2):
        pass
    assert facts is None
    overlap = 2 if isinstance(window, Sliding) else 1
    rows = (
        warehouse.read_frame(asset.published_table)
        .agg(F.sum("events"), F.max("window_end"))
        .collect()[0]
    )
    assert rows[0] == overlap * len(BELIEVED)
    assert rows[1].year == 2023
    late = warehouse.read_frame(asset.late_table).orderBy("ts").collect()
    told = {(r["reason"], r["window_start"], r["lateness_seconds"]) for r in late}
    assert told == {("future_timestamp", None, None), ("no_event_time", None, None)}
    assert [r["reason"] for r in late] == ["no_event_time", "future_timestamp", "future_timestamp"]
    assert late[2]["ts"].year == 2099
    assert check_parity(warehouse, asset).is_equal
    facts = backfill(warehouse, replace(asset, name="again"))
    assert (facts.no_event_time, facts.too_late) == (3, 0)


def test_without_a_bound_any_event_time_is_accepted(warehouse: Warehouse) -> None:
    asset = brought(warehouse, None)
    incremental(warehouse, asset)
    late = warehouse.read_frame(asset.late_table).groupBy("reason").count().collect()
    assert dict(late) == {"too_late": 3, "no_event_time": 1}


def test_a_negative_skew_is_refused() -> None:
    with pytest.raises(DefinitionError, match="max_future_skew must not be negative"):
        replace(READINGS, max_future_skew="-5 seconds")
