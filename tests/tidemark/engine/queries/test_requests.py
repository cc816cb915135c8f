"""Tests of calls below the client's public functions, which must return the same results."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client import SparkConnectClient

from tidemark.base import thresholds
from tidemark.engine.queries.requests import (
    fetch_dataframe,
    observe_rows,
    override_settings,
    read_settings,
    to_dataframe,
)

_EVERYTHING = """SELECT CAST(id AS TINYINT) tiny, id, 'é' text, X'00FF' bytes, id > 1 flag,
    CAST(id AS DOUBLE) / 3 real, CAST(id AS DECIMAL(20, 2)) exact, DATE'2026-01-01' day,
    timestamp_micros(id) instant, array(id, NULL) list, named_struct('sum', id, 'at', NULL) part,
    map('a', id) pairs, NULL nothing FROM range(3)"""
_SETTING, _OTHER = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"
_ABSENT = "spark.sql.leafNodeDefaultParallelism"


@pytest.mark.parametrize("where", ["id >= 0", "id < 0"], ids=["rows", "no rows"])
def test_fetch_returns_the_same_rows_as_the_client(spark: SparkSession, where: str) -> None:
    rows = spark.sql(_EVERYTHING).where(where)
    found = fetch_dataframe(rows)
    assert found.schema == rows.toArrow().schema
    assert found.to_pylist() == rows.toArrow().to_pylist()


@pytest.mark.parametrize("sent", [1, 8 << 20], ids=["kept with the server", "in the plan"])
def test_to_dataframe_gives_the_same_rows_as_the_client(
    spark: SparkSession, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "INLINE_BYTES", sent)
    instants = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None]
    rows = pa.table(
        {
            "instant": pa.array(instants, pa.timestamp("us", "UTC")),
            "tiny": pa.array([1, None, -1], pa.int8()),
            "text": ["é", None, ""],
            "exact": pa.array([Decimal("1.50"), None, Decimal("-1.00")], pa.decimal128(20, 2)),
            "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        }
    )
    given, usual = to_dataframe(spark, rows), spark.createDataFrame(rows)
    assert given.schema == usual.schema
    assert fetch_dataframe(given).to_pylist() == rows.to_pylist()


def test_observe_reports_an_aggregate_without_a_request_for_the_plan(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, observation = spark.range(3), Observation()
    monkeypatch.delattr(SparkConnectClient, "_analyze")
    observed = observe_rows(rows, observation, F.max("id").alias("greatest"))
    monkeypatch.undo()
    assert fetch_dataframe(observed).num_rows == 3
    assert observation.get == {"greatest": 2}


def test_settings_are_restored_after_a_block_that_fails(spark: SparkSession) -> None:
    before = read_settings(spark, [_SETTING, _OTHER, _ABSENT])
    assert before[_SETTING] != "200", "the engine has a value of its own, which is not Spark's"
    assert before[_ABSENT] is None
    outer = {_SETTING: "1", _OTHER: "false", _ABSENT: "1"}

    def fail() -> None:
        with override_settings(spark, before, outer):
            with override_settings(spark, outer, {**before, _SETTING: "3"}):
                assert spark.conf.get(_SETTING) == "3"
                assert spark.conf.get(_OTHER) == before[_OTHER]
            assert {name: spark.conf.get(name) for name in outer} == outer
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read_settings(spark, [_SETTING, _OTHER, _ABSENT]) == before
