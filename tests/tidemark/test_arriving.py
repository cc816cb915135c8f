"""Rows on their way into the log, in memory."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tidemark.source import Source
from tidemark.store.arrival import Arrival
from tidemark.store.arriving import Arriving
from tidemark.watermark import BoundedOutOfOrderness

FARES = Source(
    name="fares",
    columns={"at": "TIMESTAMP", "n": "BIGINT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("2 seconds"),
)


@pytest.mark.parametrize("places", [[(4, 0), (4, 1), (5, 0)], [(5, 0), (4, 1), (4, 0)]])
def test_events_go_into_the_log_by_arrival_and_position(places: list[tuple[int, int]]) -> None:
    arrival, position = zip(*places, strict=True)
    rows = pa.table(
        {
            "at": pa.array([0, 0, 0], pa.timestamp("us", "UTC")),
            "n": [10 * a + p for a, p in places],
            "arrival": pa.array(arrival, pa.int64()),
            "position": pa.array(position, pa.int64()),
            "read_from": ["file", "file", "file"],
        }
    )
    come = [
        Arrival(number, 1_000_000, None, None, count, 0, 0, bytes=1, position="")
        for number, count in ((4, 2), (5, 1))
    ]
    events = Arriving(FARES, rows, come).events()
    assert not isinstance(events, DataFrame | None)
    assert events["n"].to_pylist() == [40, 41, 50]
    assert events["correlation_id"].to_pylist() == ["fares:4:0", "fares:4:1", "fares:5:0"]
