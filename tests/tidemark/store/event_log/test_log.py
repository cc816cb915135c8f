"""Tests of the event log: atomic arrivals, and one writer at a time."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from helpers.data.support import READINGS, T0, ingest, some_arrivals
from tidemark.base.errors import ConflictError, DataError
from tidemark.base.instants import INFINITY
from tidemark.store.event_log.arrival import NO_ARRIVALS, Arrival, RecentArrivals
from tidemark.store.event_log.fence import Fence
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

ARRIVALS = some_arrivals(count=3, size=4)


def heartbeat(number: int) -> Arrival:
    return Arrival(number, T0, None, None, 0, None, None, 0, "{}")


def arrivals_in_table(log: Log) -> list[int]:
    rows = log.warehouse.read_frame(log.source.log_table).select("arrival").distinct().collect()
    return sorted(r[0] for r in rows)


def test_a_log_returns_the_ingested_arrivals(warehouse: Warehouse) -> None:
    added = ingest(warehouse, READINGS, ARRIVALS)
    log = Log(warehouse, READINGS)
    assert log.read_timeline() == added
    assert log.read_timeline(after_arrival=0, last_arrival=1) == added[1:2]
    assert log.find_last_arrival() == added[-1]
    assert added[-1].after == INFINITY
    assert added[-1].ends_source
    rows = log.read_events(after_arrival=0, last_arrival=2).withColumn(
        "before", F.unix_micros("watermark")
    )
    found = rows.orderBy("arrival", "position").collect()
    assert [(r.arrival, r.position) for r in found] == [(a, p) for a in (1, 2) for p in range(4)]
    assert {r.correlation_id for r in found} == {
        f"readings:{a}:{p}" for a in (1, 2) for p in range(4)
    }
    assert all(r.before == added[r.arrival].before for r in found)


def test_a_span_of_arrivals_has_only_its_own_watermarks(warehouse: Warehouse) -> None:
    made = ingest(warehouse, READINGS, some_arrivals(), ends=False)
    log = Log(warehouse, READINGS)
    every = {a.arrival: a.after for a in made}
    assert dict(map(tuple, log.watermarks_after().collect())) == every
    for known in (NO_ARRIVALS, RecentArrivals(made[2:5])):
        some = Log(warehouse, READINGS, known).limited_to_arrivals(1, 3)
        assert dict(map(tuple, some.watermarks_after().collect())) == {n: every[n] for n in (2, 3)}
    # Arrivals in memory are not read from the table.
    gone = replace(READINGS, name="gone")
    told = (
        Log(warehouse, gone, RecentArrivals(made[2:5])).limited_to_arrivals(1, 3).watermarks_after()
    )
    assert dict(map(tuple, told.collect())) == {n: every[n] for n in (2, 3)}


def test_an_empty_log_has_no_last_arrival(warehouse: Warehouse) -> None:
    log = Log(warehouse, READINGS)
    log.ensure_tables()
    assert log.find_last_arrival() is None
    assert log.read_timeline() == []


def test_a_missing_log_is_reported(warehouse: Warehouse) -> None:
    with pytest.raises(DataError, match="There is no table 'readings_timeline'"):
        Log(warehouse, READINGS).find_last_arrival()


def test_rows_beyond_the_timeline_are_removed_by_the_next_writer(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    log = Log(warehouse, READINGS)
    left = (
        log.read_events(1, 1)
        .withColumn("arrival", F.lit(2))
        .unionByName(
            warehouse.read_frame("readings_log").withColumn("arrival", F.lit(2).cast("bigint"))
        )
    )
    left.write.format("delta").mode("append").save(warehouse.path_of("readings_log"))
    assert arrivals_in_table(log) == [0, 1, 2]
    log.take_over()
    assert arrivals_in_table(log) == [0, 1]
    ingest(warehouse, READINGS, ARRIVALS[2:], ends=False)
    assert arrivals_in_table(log) == [0, 1, 2]
    assert log.read_events(1, 2).count() == 4


def test_the_previous_writer_is_refused_and_writes_nothing(warehouse: Warehouse) -> None:
    first, second = Log(warehouse, READINGS), Log(warehouse, READINGS)
    first.ensure_tables()
    first.take_over()
    second.take_over()
    rows = readings_of_arrival(warehouse, 0)
    one = Arrival(0, T0, None, None, 1, T0, T0, 0, "{}")
    with pytest.raises(ConflictError, match="Another ingest of 'readings' has taken over"):
        first.append_arrivals(rows, [one])
    assert first.read_timeline() == []
    assert arrivals_in_table(first) == []
    second.append_arrivals(rows, [one])
    assert second.read_timeline() == [one]
    assert second.read_events(-1, 0).count() == 1


def test_a_write_from_before_the_fence_is_refused(warehouse: Warehouse) -> None:
    # A killed client's write may reach the engine long after the next writer began.
    log = Log(warehouse, READINGS)
    log.ensure_tables()
    zombie = Fence(warehouse, "readings_timeline", "readings_ingest")
    zombie.fence_off()
    log.take_over()
    for number in range(3):
        follows = f"arrival {number - 1}" if number else ""
        arrival = replace(heartbeat(number), arrival_id=f"arrival {number}", follows=follows)
        log.append_arrivals(log.read_events(-1, -1), [arrival])
    with pytest.raises(ConflictError, match="has taken over"):
        zombie.append_rows(warehouse.load_rows("readings_timeline"))
    assert [a.arrival for a in log.read_timeline()] == [0, 1, 2]


def test_a_log_of_a_newer_tidemark_is_refused(warehouse: Warehouse) -> None:
    Log(warehouse, READINGS).ensure_tables()
    path = warehouse.path_of("readings_timeline")
    warehouse.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('tidemark.format' = '99')")
    fresh = Warehouse(warehouse.spark, *warehouse.place)
    for use in (Log(fresh, READINGS).ensure_tables, Log(fresh, READINGS).find_last_arrival):
        with pytest.raises(DataError, match="written by a newer Tidemark"):
            use()


def readings_of_arrival(warehouse: Warehouse, number: int):  # noqa: ANN201
    return warehouse.spark.range(1).select(
        F.timestamp_micros(F.lit(T0)).alias("ts"),
        F.lit("a").alias("sensor"),
        F.lit(1.0).alias("value"),
        F.lit(1).cast("decimal(10,2)").alias("price"),
        F.lit(number).cast("bigint").alias("arrival"),
        F.lit(0).cast("bigint").alias("position"),
        F.lit("memory").alias("read_from"),
    )
