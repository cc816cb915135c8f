"""Tests of definitions, which are checked without an engine when they are declared."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from helpers.data.support import MINUTE, PER_MINUTE, READINGS
from tidemark.base.errors import DefinitionError
from tidemark.compute.windowing import check_analysis
from tidemark.define import aggregates as agg
from tidemark.define.source import Source
from tidemark.define.transform import windowed_asset
from tidemark.define.triggers.trigger import Count, Every, Trigger
from tidemark.define.watermarks import MonotonicTimestamps, Perfect
from tidemark.define.windows import Cumulating, Global, Session, Sliding, Tumbling
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse


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

    assert counted.name == counted.published_table == "counted"
    assert counted.description == "How many readings there are."
    assert counted.allowed_lateness == 2 * MINUTE
    assert str(counted.window) == "tumbling 1 minute"
    assert [str(a) for a in counted.aggregates.values()] == ["count(*)"]
    assert counted.late_loss_table == "counted_late_loss"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "Per Minute"}, "'Per Minute' is not a valid asset name"),
        ({"aggregates": {}}, "has no aggregates"),
        (
            {"aggregates": {"median": "percentile(value, 0.5)"}},
            r"'median' must be an aggregate of .* \(got percentile\(value, 0.5\)\)\. Use agg\.quan",
        ),
        (
            {"aggregates": {"revision": agg.count()}},
            "adds a column 'revision' to the published table.*'own_revision'",
        ),
        ({"aggregates": {"sensor": agg.count()}}, "'sensor' is both a key and an aggregate"),
        ({"aggregates": {"n": agg.count(), "n_complete": agg.count()}}, "'n_complete' is taken"),
        ({"keys": ("the sensor",)}, "'the sensor' is not a valid column name"),
        (
            {"allowed_lateness": -1},
            r"allowed_lateness must not be negative \(got '-1 microseconds'\)",
        ),
    ],
)
def test_an_invalid_definition_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        replace(PER_MINUTE, **change)


@pytest.mark.parametrize("length", ["0 seconds", "-1 hour"])
@pytest.mark.parametrize(
    ("made_of", "what"),
    [
        (Tumbling, "The size of a tumbling window"),
        (lambda size: Sliding(size, "1 hour"), "The size of a sliding window"),
        (lambda slide: Sliding("1 hour", slide), "The slide of a sliding window"),
        (lambda size: Cumulating(size, "1 hour"), "The size of a cumulating window"),
        (lambda step: Cumulating("1 hour", step), "The step of a cumulating window"),
        (Session, "The gap of a session window"),
        (Every, "The interval of a trigger"),
    ],
)
def test_durations_must_be_greater_than_zero(
    made_of: Callable[[str], object], what: str, length: str
) -> None:
    with pytest.raises(
        DefinitionError, match=f"{what} must be greater than zero \\(got '{length}'"
    ):
        made_of(length)


def test_a_slide_longer_than_the_size_reports_its_gaps() -> None:
    assert str(Sliding("5 minutes", "1 hour")).endswith("with uncovered gaps of 55 minutes")


def test_a_trigger_count_must_be_at_least_one() -> None:
    with pytest.raises(DefinitionError, match="Count: `n` must be 1 or more \\(got 0"):
        Count(0)


def test_lateness_and_late_firings_without_effect_are_allowed() -> None:
    # An asset stays valid if the watermark of its source or its own lateness changes.
    history = replace(READINGS, watermark=Perfect())
    everything = replace(PER_MINUTE, window=Global(), trigger=Trigger(late=Count(10)))
    for asset in (replace(PER_MINUTE, source=history), replace(everything, allowed_lateness=0)):
        assert asset.name == "per_minute"


@pytest.mark.parametrize(
    ("columns", "event_time", "sentence"),
    [
        ({"ts": "timestamp"}, "time", "event-time column 'time' is not among its columns: ts"),
        ({"ts": "string"}, "ts", "'ts' is declared as string: declare it as TIMESTAMP"),
        ({"ts": "timestamp", "arrival": "int"}, "ts", "'arrival' is reserved: .* the event log"),
        ({"ts": "timestamp", "a`b": "int"}, "ts", "'a`b' is not a valid column name.* a backtick"),
        ({"ts": "timestamp", "_Tidemark_x": "int"}, "ts", "'_Tidemark_x' begins with '_tidemark_'"),
        ({"ts": "timestamp", "id": "int", "ID": "int"}, "ts", "'id' and 'ID' differ only in case"),
    ],
)
def test_a_source_with_invalid_columns_is_refused(
    columns: dict[str, str], event_time: str, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        Source("s", columns, event_time, MonotonicTimestamps())


def test_a_name_that_is_too_long_for_a_folder_is_refused() -> None:
    assert replace(READINGS, name="x" * 100).name == "x" * 100
    with pytest.raises(DefinitionError, match=r"'xxx.*…' has 101 characters: use at most 100"):
        replace(READINGS, name="x" * 101)


@pytest.mark.parametrize(
    ("rename", "sentence"),
    [
        ({"position": "place"}, "'position' to the column 'place', which is not among its columns"),
        ({"value": "sensor"}, "two columns would be read from the field 'value'"),
        ({"a": "sensor", "b": "sensor"}, "maps two fields to the column 'sensor': remove one"),
        ({"_tidemark_a": "sensor"}, "the field name '_tidemark_a' begins with '_tidemark_'"),
        ({"VALUE": "sensor"}, "the fields 'VALUE' and 'value' differ only in case"),
    ],
)
def test_an_invalid_rename_is_refused(rename: dict[str, str], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        replace(READINGS, rename=rename)


def test_a_function_that_drops_arrival_columns_is_refused(spark: SparkSession) -> None:
    few = replace(PER_MINUTE, function=lambda rows: rows.select("ts", "sensor", "value"))
    rows = spark.sql("SELECT timestamp_micros(0) ts, 'a' sensor, 1.0 value")
    with pytest.raises(DefinitionError, match=r"'per_minute'.* has no column 'arrival'"):
        few.prepare_rows(rows)


def test_sums_of_unsupported_types_are_refused_before_a_run(
    warehouse: Warehouse,
) -> None:
    log = Log(warehouse, READINGS)
    log.ensure_tables()
    wrong = replace(PER_MINUTE, aggregates={"total": agg.sum("array(value)")})
    with pytest.raises(
        DefinitionError, match=r"'per_minute': the aggregate 'total', .* needs numbers"
    ):
        check_analysis(log, wrong)


def test_an_unknown_accumulation_is_refused() -> None:
    with pytest.raises(DefinitionError, match="accumulating, discarding, retracting"):
        replace(PER_MINUTE, accumulation="adding")


@pytest.mark.parametrize("taken", ["arrival", "Watermark", "window_start", "commit_number"])
def test_a_source_cannot_use_reserved_column_names(taken: str) -> None:
    with pytest.raises(DefinitionError, match=f"the column name '{taken}' is reserved:"):
        replace(READINGS, columns={**READINGS.columns, taken: "bigint"})
