"""Tests of coverage, the arrival through which each window is complete, and of commit numbers."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE
from tidemark.base.errors import ConflictError
from tidemark.define.classification import ON_TIME
from tidemark.define.helper_columns import ADMITTED, SLOT, VERDICT
from tidemark.store.asset import Asset
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.kinds import Increment
from tidemark.store.epoch import Epoch
from tidemark.store.state import State, with_commit_number
from tidemark.store.warehouse import Warehouse


def cover(start: int, end: int, arrival: int) -> BackfilledRange:
    return BackfilledRange(start, end, TimelinePosition(arrival, arrival * 10, arrival * 100))


def arrivals(spark: SparkSession, coverage: Coverage, starts: list[int]) -> list[int]:
    rows = spark.createDataFrame([(i, s) for i, s in enumerate(starts)], "i INT, s BIGINT")
    window = F.timestamp_micros("s"), F.timestamp_micros(F.col("s") + 1)
    rows = rows.withColumns(dict(zip(("window_start", "window_end"), window, strict=True)))
    picked = coverage.position_column("arrival")
    return [r[0] for r in rows.orderBy("i").select(picked).collect()]


def test_a_backfilled_range_is_ahead_until_the_stream_catches_up(
    spark: SparkSession,
) -> None:
    coverage = Coverage(TimelinePosition(3)).with_backfill(cover(100, 200, 9))
    assert arrivals(spark, coverage, [99, 100, 199, 200]) == [3, 9, 9, 3]
    assert arrivals(spark, coverage.advance_to(TimelinePosition(8)), [99, 100]) == [8, 9]
    assert coverage.advance_to(TimelinePosition(9)) == Coverage(TimelinePosition(9))


def test_a_newer_backfilled_range_overrides_older_ones(spark: SparkSession) -> None:
    old = (
        Coverage(TimelinePosition(3))
        .with_backfill(cover(100, 200, 7))
        .with_backfill(cover(300, 400, 7))
    )
    new = old.with_backfill(cover(150, 350, 9))
    assert arrivals(spark, new, [100, 149, 150, 250, 349, 350, 399]) == [7, 7, 9, 9, 9, 7, 7]
    inside = old.with_backfill(cover(120, 130, 9))
    assert arrivals(spark, inside, [119, 120, 130, 199]) == [7, 9, 7, 7]


def test_a_backfilled_range_that_is_not_ahead_is_ignored() -> None:
    assert Coverage(TimelinePosition(9)).with_backfill(cover(0, 10, 9)) == Coverage(
        TimelinePosition(9)
    )


def partials(spark: SparkSession, events: int) -> DataFrame:
    return spark.sql(
        f"SELECT timestamp_micros(0) window_start, timestamp_micros(60000000) window_end, "
        f"'a' sensor, CAST(0 AS TINYINT) {VERDICT}, 0L {SLOT}, {events}L events, 0L last_arrival, "
        f"true {ADMITTED}"
    )


def stored(spark: SparkSession, events: int, commit_number: int = 0) -> DataFrame:
    return with_commit_number(partials(spark, events), commit_number)


def test_only_the_first_of_two_runs_with_one_number_commits(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    state = State(warehouse, PER_MINUTE)
    assert state.read_last_commit().commit_number == -1
    epoch = Epoch(state.ensure_table(stored(spark, 5)), 0, lambda: True)
    first = Increment(run="first", commit_number=0)
    state.store_commit(stored(spark, 5), first, epoch)
    assert state.count_events(first) == {ON_TIME: 5}
    with pytest.raises(ConflictError, match="Another run wrote 'per_minute_state'"):
        state.store_commit(stored(spark, 7), Increment(run="second", commit_number=0), epoch)
    assert [r["events"] for r in state.read_partials().collect()] == [5]
    assert state.read_last_commit().run == "first"
    assert state.count_events(state.read_last_commit())[0] == 5


def test_an_asset_gets_its_identity_from_the_first_run_that_any_process_makes(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    """Otherwise, a run that began before the first one would not find its published commits."""
    waiting = Asset(warehouse, PER_MINUTE)
    assert waiting.table_id is None
    other = Warehouse(spark, *warehouse.place)
    created = State(other, PER_MINUTE).ensure_table(spark.createDataFrame([], "commit_number LONG"))
    assert waiting.table_id == created
