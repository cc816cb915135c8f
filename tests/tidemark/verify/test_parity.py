"""Tests that parity finds every kind of injected difference and nothing else."""

from collections import Counter
from typing import Any, NoReturn

import pytest
from pyspark.sql import functions as F

from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    T0,
    at,
    ingest,
    minutes,
    published,
    some_arrivals,
)
from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity


@pytest.fixture(scope="module")
def streamed(shared: Warehouse) -> Warehouse:
    ingest(shared, READINGS, some_arrivals(seed=3))
    incremental(shared, PER_MINUTE, limit=3)
    incremental(shared, PER_MINUTE)
    return shared


def change(warehouse: Warehouse, statement: str) -> None:
    path = f"delta.`{warehouse.path_of(PER_MINUTE.published_table)}`"
    warehouse.spark.sql(statement.format(table=path)).collect()


def found(warehouse: Warehouse, *bounds: int) -> list[tuple[str, str, Any, str | None]]:
    report = check_parity(warehouse, PER_MINUTE, *bounds)
    kinds = Counter(d.kind for d in report.differences)
    assert (report.is_equal, report.kinds) == (report.total == 0, kinds)
    assert report.unexplained_count == report.total - kinds["late_loss"]
    return [(d.kind, d.window_start, d.keys["sensor"], d.column) for d in report.differences]


WINDOW = f"window_start = timestamp_micros({T0})"
START = at(T0).replace("+00:00", ".000000Z")


def test_each_injected_difference_is_found_and_named(streamed: Warehouse) -> None:
    report = check_parity(streamed, PER_MINUTE)
    assert report.is_equal
    assert report.windows == len(published(streamed, PER_MINUTE)) > 10

    change(streamed, f"UPDATE {{table}} SET total = total + 0.01 WHERE {WINDOW} AND sensor = 'a'")
    change(streamed, f"DELETE FROM {{table}} WHERE {WINDOW} AND sensor IS NULL")
    twin = streamed.read_frame(PER_MINUTE.published_table).where(f"{WINDOW} AND sensor = 'b'")
    ghost = twin.withColumn("sensor", F.lit("ghost"))
    ghost.write.format("delta").mode("append").save(streamed.path_of(PER_MINUTE.published_table))
    assert found(streamed) == [
        ("value", START, "a", "total"),
        ("extra", START, "ghost", None),
        ("missing", START, None, None),
    ]
    assert found(streamed, *minutes(1, 100)) == []

    backfill(streamed, PER_MINUTE, *minutes(0, 1))
    assert found(streamed) == []
    backfill(streamed, PER_MINUTE, late_events="include")
    kinds = found(streamed)
    assert kinds
    assert {kind for kind, *_ in kinds} == {"late_loss"}


def test_few_rows_are_compared_in_memory(
    streamed: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def materialize(*_: object) -> NoReturn:
        raise AssertionError("few rows were written to files")

    monkeypatch.setattr(Warehouse, "materialize_rows", materialize)
    assert check_parity(streamed, PER_MINUTE).windows > 10
    # Either the events are many, or the resulting rows.
    for bound in ("SMALL_BATCH_ROWS", "IN_MEMORY_PARTIALS"):
        with monkeypatch.context() as patch:
            patch.setattr(thresholds, bound, 10)
            with pytest.raises(AssertionError, match="written to files"):
                check_parity(streamed, PER_MINUTE)


def test_parity_of_an_unpublished_asset_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(DataError, match="no table 'per_minute'"):
        check_parity(warehouse, PER_MINUTE)
