"""Tests of lookup joins at recorded versions: later changes of a table do not change results."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.runs import run_all
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    Event,
    ingest,
    minutes,
    published,
    reference,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import NIGHTLY
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.define.uniqueness import Deduplicate
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.lookup_tables import current_versions, recorded_versions
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

SOURCE = replace(READINGS, lookups=("places",))
ARRIVALS = some_arrivals(seed=4)
CHANGES = {0: {"a": "east", "b": "east"}, 2: {"a": "west", "b": "east"}, 4: {"a": "west"}}
"""The place of each sensor, by the arrival before which the table is written."""


def at_places(readings: DataFrame, places: DataFrame) -> DataFrame:
    placed = readings.join(places, "sensor", "left")
    return placed.withColumn("sensor", F.coalesce("place", "sensor")).drop("place")


def then(arrival: int) -> dict[str, str]:
    return CHANGES[max(n for n in CHANGES if n <= arrival)]


def placed(at: int | None = None) -> dict[tuple[int, str | None], dict[str, object]]:
    """Return the expected rows. With `at`, every arrival uses the table as of that arrival."""
    return reference(
        [
            [replace(e, key=then(n if at is None else at).get(e.key or "", e.key)) for e in events]
            for n, events in enumerate(ARRIVALS)
        ]
    )


ASSET = replace(PER_MINUTE, source=SOURCE, function=at_places)
WANT = placed()


def write(warehouse: Warehouse, rows: dict[str, str]) -> None:
    table = warehouse.spark.createDataFrame(list(rows.items()), "sensor STRING, place STRING")
    table.write.format("delta").mode("overwrite").save(warehouse.path_of("places"))


def fill(
    warehouse: Warehouse, source: Source = SOURCE, arrivals: Sequence[Sequence[Event]] = ARRIVALS
) -> None:
    """Fill the log, and change the table of places between the arrivals and once after them."""
    for number, events in enumerate(arrivals):
        if number in CHANGES:
            write(warehouse, CHANGES[number])
        versions = json.dumps(current_versions(warehouse, source))
        ends = number == len(arrivals) - 1
        ingest(warehouse, source, [events], ends=ends, versions=versions)
    write(warehouse, {"a": "nowhere", "b": "nowhere"})


@pytest.fixture(scope="module")
def logged(engine: Settings, spark: SparkSession) -> Warehouse:
    """Return a warehouse with such a log. Each test uses its own asset name."""
    name = f"test_references_{random.SystemRandom().randrange(1 << 32):x}"
    warehouse = Warehouse(spark, engine.warehouse, name, registered=False)
    fill(warehouse)
    return warehouse


def test_each_version_of_the_lookup_table_gives_other_results() -> None:
    assert len({json.dumps(sorted(map(str, placed(at)))) for at in CHANGES}) > 1
    assert all(placed(at) != WANT for at in CHANGES)


@pytest.mark.parametrize("limit", [pytest.param(1, marks=NIGHTLY), None])
def test_runs_of_any_size_join_the_same_versions(logged: Warehouse, limit: int | None) -> None:
    asset = renamed(ASSET, f"cut_{limit}".lower())
    run_all(logged, asset, limit)
    assert published(logged, asset) == WANT


# Backfills and runs in several cuts.
@pytest.mark.slow
def test_backfills_join_the_same_versions_as_the_stream(logged: Warehouse) -> None:
    asset = renamed(ASSET, "filled")
    incremental(logged, asset, limit=3)
    backfill(logged, asset, *minutes(-10, 2))
    run_all(logged, asset, 3)
    assert published(logged, asset) == WANT
    assert check_parity(logged, asset).is_equal
    backfill(logged, asset)
    assert published(logged, asset) == WANT


def test_arrivals_with_the_same_versions_are_read_together(logged: Warehouse) -> None:
    spans = recorded_versions(Log(logged, SOURCE), ["places"], -1, 5)
    assert [(s.after, s.through, s.versions["places"]) for s in spans] == [
        (-1, 1, 0),
        (1, 3, 1),
        (3, 5, 2),
    ]


def test_a_function_without_a_lookup_parameter_joins_nothing(logged: Warehouse) -> None:
    asset = renamed(replace(PER_MINUTE, source=SOURCE), "without")
    run_all(logged, asset, None)
    assert published(logged, asset) == reference(ARRIVALS)


# Backfills and runs in several cuts.
@pytest.mark.nightly
@pytest.mark.slow
def test_duplicates_are_found_before_the_join(logged: Warehouse) -> None:
    once = Deduplicate(("sensor", "value"), within="0 seconds")
    asset = renamed(replace(ASSET, deduplicate=once), "once")
    run_all(logged, asset, 3)
    assert published(logged, asset) == WANT
    backfill(logged, asset)
    assert published(logged, asset) == WANT


def test_earlier_arrivals_use_the_first_recorded_version(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    write(warehouse, CHANGES[0])
    with pytest.raises(DataError, match=r"No arrival .* has recorded a version .* 'places' yet"):
        backfill(warehouse, ASSET)
    write(warehouse, CHANGES[2])
    versions = json.dumps(current_versions(warehouse, SOURCE))
    ingest(warehouse, SOURCE, ARRIVALS[2:4], ends=False, versions=versions)
    write(warehouse, CHANGES[4])
    ingest(
        warehouse, SOURCE, ARRIVALS[4:], versions=json.dumps(current_versions(warehouse, SOURCE))
    )
    run_all(warehouse, ASSET, 5)
    places = [CHANGES[2]] * 4 + [CHANGES[4]]
    assert published(warehouse, ASSET) == reference(
        [
            [replace(e, key=here.get(e.key or "", e.key)) for e in events]
            for here, events in zip(places, ARRIVALS, strict=True)
        ]
    )


def test_a_deleted_version_is_reported_in_one_line(warehouse: Warehouse) -> None:
    fill(warehouse, arrivals=ARRIVALS[:3])
    path, spark = warehouse.path_of("places"), warehouse.spark
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS").collect()
    spark.conf.unset(check)
    with pytest.raises(
        DataError, match=r"the file '.*places.*\.parquet' was deleted\. Restore it"
    ) as caught:
        backfill(warehouse, ASSET)
    assert "\n" not in str(caught.value)


def test_a_version_that_never_existed_is_reported_in_one_line(warehouse: Warehouse) -> None:
    write(warehouse, CHANGES[0])
    ingest(warehouse, SOURCE, ARRIVALS[:1], versions='{"places": 7}')
    with pytest.raises(DataError, match="Version 7 of lookup table") as caught:
        backfill(warehouse, ASSET)
    assert "\n" not in str(caught.value)


def test_a_missing_lookup_table_is_reported(warehouse: Warehouse) -> None:
    said = "'readings' has the lookup table 'places', but there is no Delta table at .*: create it"
    with pytest.raises(DataError, match=said):
        current_versions(warehouse, SOURCE)


def test_a_lookup_path_is_named_by_its_last_part(warehouse: Warehouse) -> None:
    write(warehouse, CHANGES[0])
    source = replace(READINGS, lookups=(warehouse.path_of("places"),))
    assert current_versions(warehouse, source) == {"places": 0}
    assert replace(ASSET, source=source).lookup_names == ["places"]


def test_a_function_may_use_only_declared_lookups() -> None:
    with pytest.raises(
        DefinitionError, match=r"has the parameter .places., which is not a lookup table .*: none"
    ):
        replace(ASSET, source=READINGS)
    with pytest.raises(
        DefinitionError, match="the lookup table 'My Places' can't be a parameter of functions"
    ):
        replace(READINGS, lookups=("/lake/My Places",))
    with pytest.raises(DefinitionError, match="two lookup tables have the name 'places'"):
        replace(READINGS, lookups=("places", "/lake/places"))
