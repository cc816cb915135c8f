"""Tables read without the engine, and the end of a process that has read them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from tidemark_streaming import scan


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    path = tmp_path / "a home of ours" / "fares"
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number, number + 10]}), mode="append")
    return DeltaTable(path)


def test_the_rows_of_a_condition_are_read(table: DeltaTable) -> None:
    rows = scan.rows(table, ["n"], ds.field("n") >= 10)
    assert sorted(rows["n"].to_pylist()) == [10, 11, 12]


@pytest.mark.parametrize(
    ("kind", "far"),
    [
        (pa.timestamp("us", "UTC"), 1_700_000_000_000_000_000),
        (pa.timestamp("us", "UTC"), -62_167_219_200_000_000),
        (pa.date32(), 3_700_000),
    ],
)
def test_a_row_beside_one_beyond_the_year_9999_is_found(
    tmp_path: Path, kind: pa.DataType, far: int
) -> None:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    for number in range(3):
        values = pa.array([number, far], plain).cast(kind)
        rows = pa.table({"at": values, "n": pa.array([number, number + 10])})
        write_deltalake(tmp_path / "fares", rows, mode="append")
    at, table = ds.field("at"), DeltaTable(tmp_path / "fares")
    one, two = (pa.scalar(number, plain).cast(kind) for number in (1, 2))
    assert scan.rows(table, ["n"], at == one)["n"].to_pylist() == [1]
    assert scan.rows(table, ["n"], (at >= one) & (at < two))["n"].to_pylist() == [1]
    assert scan.rows(table, ["n"], ds.field("n") > 11)["n"].to_pylist() == [12]
    assert scan.rows(table).num_rows == 6


def test_no_thread_is_left_with_a_file_of_python_s(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a thread aborted one process in ten at its end."""

    def opened(_: DeltaStorageHandler, path: str) -> pa.PythonFile:
        raise AssertionError(path)

    monkeypatch.setattr(DeltaStorageHandler, "open_input_file", opened)
    with pytest.raises(AssertionError):
        table.to_pyarrow_dataset().to_table()
    assert scan.whole(table.table_uri) == scan.rows(table)


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert scan.whole(str(tmp_path / "fares")) is None
