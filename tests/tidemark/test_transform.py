"""Definitions are read without an engine, and refused where they are written."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support import MINUTE, PER_MINUTE, READINGS
from tidemark import aggregate as agg
from tidemark.errors import DefinitionError
from tidemark.log import Log
from tidemark.pane import check
from tidemark.source import Source
from tidemark.transform import windowed_asset
from tidemark.warehouse import Warehouse
from tidemark.watermark import Monotonous
from tidemark.window import Tumbling


def test_a_definition_takes_its_name_and_description_from_the_function() -> None:
    @windowed_asset(
        source=READINGS,
        keys=["sensor"],
        window=Tumbling("1 minute"),
        allowed_lateness="2 minutes",
        aggregates={"n": agg.count()},
    )
    def counted(readings: DataFrame) -> DataFrame:
        """How many readings there are."""
        return readings

    assert counted.name == counted.table == "counted"
    assert counted.description == "How many readings there are."
    assert counted.allowed_lateness == 2 * MINUTE
    assert str(counted.window) == "tumbling 1 minute"
    assert [str(a) for a in counted.aggregates.values()] == ["count(*)"]
    assert counted.late_loss_table == "counted_late_loss"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "Per Minute"}, "The asset name 'Per Minute' can't name a table"),
        ({"aggregates": {}}, "has no aggregates"),
        (
            {"aggregates": {"median": "percentile(value, 0.5)"}},
            r"aggregate 'median' \(percentile\(value, 0.5\)\) can't merge.* use one of",
        ),
        ({"aggregates": {"revision": agg.count()}}, "column name 'revision' is taken"),
        ({"aggregates": {"sensor": agg.count()}}, "column name 'sensor' is taken"),
        ({"keys": ("the sensor",)}, "'the sensor' can't name a column"),
        ({"allowed_lateness": -1}, "allowed lateness is negative"),
    ],
)
def test_a_definition_that_no_run_could_follow(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        replace(PER_MINUTE, **change)


@pytest.mark.parametrize("size", ["0 seconds", "-1 hour"])
def test_a_window_without_a_size(size: str) -> None:
    with pytest.raises(DefinitionError, match=f"size is more than zero, not '{size}'"):
        Tumbling(size)


@pytest.mark.parametrize(
    ("columns", "event_time", "sentence"),
    [
        ({"ts": "timestamp"}, "time", "event-time column 'time' is not among its columns: ts"),
        ({"ts": "string"}, "ts", "'ts' is a string; it must be a timestamp"),
        ({"ts": "timestamp", "arrival": "int"}, "ts", "'arrival' is reserved for the facts"),
    ],
)
def test_a_source_without_a_usable_event_time(
    columns: dict[str, str], event_time: str, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        Source("s", columns, event_time, Monotonous())


def test_a_preparation_that_drops_what_judging_needs(spark: SparkSession) -> None:
    few = replace(PER_MINUTE, function=lambda rows: rows.select("ts", "sensor", "value"))
    rows = spark.sql("SELECT timestamp_micros(0) ts, 'a' sensor, 1.0 value")
    with pytest.raises(DefinitionError, match=r"'per_minute'.* has no column 'arrival'"):
        few.prepare(rows)


def test_a_type_that_cannot_be_added_up_is_refused_before_anything_runs(
    warehouse: Warehouse,
) -> None:
    log = Log(warehouse, READINGS)
    log.create()
    wrong = replace(PER_MINUTE, aggregates={"total": agg.sum("array(value)")})
    with pytest.raises(DefinitionError, match="'per_minute' can't run on source 'readings'"):
        check(log, wrong)


def test_an_unknown_accumulation_is_refused() -> None:
    with pytest.raises(DefinitionError, match="accumulating, discarding, retracting"):
        replace(PER_MINUTE, accumulation="adding")


@pytest.mark.parametrize("taken", ["arrival", "verdict", "window_start", "seq"])
def test_a_source_leaves_tidemarks_own_names_alone(taken: str) -> None:
    with pytest.raises(DefinitionError, match=f"the column name '{taken}' is reserved for"):
        replace(READINGS, columns={**READINGS.columns, taken: "bigint"})
