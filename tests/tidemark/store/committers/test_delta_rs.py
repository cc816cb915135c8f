"""Tests of delta-rs behavior that Tidemark relies on, at sizes at which users saw it fail."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from tidemark.store.committers.committer import Committer
from tidemark.store.committers.compaction import compact_files
from tidemark.store.committers.merging import merge_rows
from tidemark.store.committers.values import Merge

BATCH = 8_192
"""Rows that delta-rs reads at once."""


def windows(first: int, last: int, value: int) -> pa.Table:
    """Return rows of 50 keys per minute, one of which is null. Every eleventh is a deletion."""
    numbers = range(first, last)
    starts = pa.array([n // 50 * 60_000_000 for n in numbers], pa.int64())
    return pa.table(
        {
            "window_start": starts.cast(pa.timestamp("us", "UTC")),
            "name": pa.array([None if n % 50 == 7 else f"{n % 50}" for n in numbers]),
            "value": pa.array([value] * len(numbers), pa.int64()),
            "gone": pa.array([n % 11 == 0 for n in numbers]),
        }
    )


@pytest.mark.parametrize("rows", [BATCH, BATCH + 1, 3 * BATCH])
def test_more_windows_than_one_batch_are_merged(tmp_path: Path, rows: int) -> None:
    """delta-rs 4475: each window replaces its earlier version, for any number of windows."""
    path = str(tmp_path / "windows")
    write_deltalake(
        path,
        windows(0, rows, 0).drop_columns(["gone"]),
        configuration={"delta.enableChangeDataFeed": "true"},
        writer_properties=WriterProperties(max_row_group_size=5_000),
    )
    merge = Merge(on=("window_start", "name"), delete="s.gone", insert="NOT s.gone")
    merge_rows(DeltaTable(path), windows(100, rows + 100, 1), merge, CommitProperties())
    found = DeltaTable(path).to_pyarrow_table()["value"].to_pylist()
    assert found.count(0) == 100
    assert found.count(1) == sum(n % 11 != 0 for n in range(100, rows + 100)) == len(found) - 100


def test_a_table_that_is_compacted_after_a_checkpoint_keeps_its_rows(tmp_path: Path) -> None:
    """delta-rs 3047: each row stays exactly once, however often a table is compacted."""
    path = str(tmp_path / "windows")
    for first in range(0, 800, 100):
        write_deltalake(path, windows(first, first + 100, first), mode="append")
    for _ in range(3):
        DeltaTable(path).create_checkpoint()
        compact_files(DeltaTable(path), 1 << 20)
        numbers = DeltaTable(path).to_pyarrow_table()["value"].to_pylist()
        assert sorted(numbers) == sorted(first for first in range(0, 800, 100) for _ in range(100))


def test_of_writers_that_create_a_table_at_the_same_time_one_does(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A second creation would change the identity of a table that may have rows already."""
    writers = 4
    start = Barrier(writers)

    def create(table: str) -> bool:
        committer = Committer(spark, str(tmp_path))
        start.wait()
        return committer.create_table(table, pa.schema({"n": pa.int64()}), "", {})

    with ThreadPoolExecutor(writers) as pool:
        for n in range(40):
            table = f"t{n}"
            created = list(pool.map(create, [table] * writers))
            assert (sum(created), DeltaTable(str(tmp_path / table)).version()) == (1, 0)
