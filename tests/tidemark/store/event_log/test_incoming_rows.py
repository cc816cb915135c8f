"""Tests of rows that are written to the event log, in memory and in the engine."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.engine.queries.requests import to_dataframe
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.incoming_rows import IncomingRows

FARES = Source(
    name="fares",
    columns={"at": "TIMESTAMP", "n": "BIGINT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("2 seconds"),
)


COME = [
    Arrival(number, clock, before, after, count, 0, 0, bytes=1, position="")
    for number, clock, before, after, count in ((4, 100, None, 20, 2), (5, 200, 20, 60, 1))
]


def fares(*places: tuple[int, int]) -> pa.Table:
    """Return rows with the given arrivals and positions."""
    arrival, position = zip(*places, strict=True)
    return pa.table(
        {
            "at": pa.array([0, 0, 0], pa.timestamp("us", "UTC")),
            "n": [10 * a + p for a, p in places],
            "arrival": pa.array(arrival, pa.int64()),
            "position": pa.array(position, pa.int64()),
            "read_from": ["file", "file", "file"],
        }
    )


def check(arriving: IncomingRows) -> None:
    """Check the order of rows in the event log and the facts of their arrivals."""
    events = arriving.decoded_events()
    assert not isinstance(events, DataFrame | None)
    assert events["n"].to_pylist() == [40, 41, 50]
    assert events["correlation_id"].to_pylist() == ["fares:4:0", "fares:4:1", "fares:5:0"]
    assert events["arrived_at"].cast(pa.int64()).to_pylist() == [100, 100, 200]
    # They are classified against the watermark before their arrival.
    assert events["watermark"].cast(pa.int64()).to_pylist() == [None, None, 20]


@pytest.mark.parametrize("places", [[(4, 0), (4, 1), (5, 0)], [(5, 0), (4, 1), (4, 0)]])
def test_events_are_logged_by_arrival_and_position(places: list[tuple[int, int]]) -> None:
    check(IncomingRows(FARES, fares(*places), COME))


def test_events_from_the_engine_are_logged_with_the_same_facts(spark: SparkSession) -> None:
    check(IncomingRows(FARES, to_dataframe(spark, fares((5, 0), (4, 1), (4, 0))), COME))
