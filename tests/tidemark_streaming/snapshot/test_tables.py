"""Reading tables without the engine, and a clean exit of the process afterwards."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from hypothesis import HealthCheck, given
from hypothesis import settings as configured
from hypothesis import strategies as st

from tidemark.base.settings import Settings
from tidemark.store.commits.conditions import Equals, InRanges, at_least, less_than
from tidemark_streaming.snapshot.tables import Tables


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "a home of ours")


@pytest.fixture
def tables(settings: Settings) -> Tables:
    for number in range(3):
        write_deltalake(at(settings), pa.table({"n": [number, number + 10]}), mode="append")
    return Tables.of_database(settings)


def at(settings: Settings) -> str:
    return f"{settings.warehouse}/{settings.database}/fares"


def numbers(table: pa.Table | None, column: str = "n") -> list[int]:
    assert table is not None
    return sorted(table[column].to_pylist())


def test_rows_are_filtered_by_a_condition(tables: Tables) -> None:
    assert numbers(tables.read("fares", ["n"], ds.field("n") >= 10)) == [10, 11, 12]


@pytest.mark.parametrize(
    ("kind", "far"),
    [
        (pa.timestamp("us", "UTC"), 1_700_000_000_000_000_000),
        (pa.timestamp("us", "UTC"), -62_167_219_200_000_000),
        (pa.date32(), 3_700_000),
    ],
)
def test_a_row_is_found_next_to_one_beyond_the_year_9999(
    settings: Settings, kind: pa.DataType, far: int
) -> None:
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    for number in range(3):
        values = pa.array([number, far], plain).cast(kind)
        rows = pa.table({"at": values, "n": pa.array([number, number + 10])})
        write_deltalake(at(settings), rows, mode="append")
    when, tables = ds.field("at"), Tables.of_database(settings)
    one, two = (pa.scalar(number, plain).cast(kind) for number in (1, 2))
    assert numbers(tables.read("fares", ["n"], when == one)) == [1]
    assert numbers(tables.read("fares", ["n"], (when >= one) & (when < two))) == [1]
    assert numbers(tables.read("fares", ["n"], ds.field("n") > 11)) == [12]
    assert len(numbers(tables.read("fares"))) == 6
    if pa.types.is_timestamp(kind):
        only = InRanges("at", ((1, 2),))
        assert numbers(tables.read("fares", ["n"], bounds=[only])) == [1]


INSTANTS = st.none() | st.integers(-(10**17), 10**17)
ROWS = st.lists(st.tuples(INSTANTS, st.none() | st.sampled_from("abc")), min_size=1, max_size=4)


@configured(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(-(10**17), 10**17))
def test_files_skipped_by_a_bound_have_no_row_within_it(
    tmp_path: Path, commits: list[list[tuple[int | None, str | None]]], least: int
) -> None:
    settings = Settings(home=tmp_path / str(time.monotonic_ns()))
    for rows in commits:
        micros = pa.array([row[0] for row in rows], pa.int64())
        columns = {"at": micros.cast(pa.timestamp("us", "UTC")), "n": micros}
        text = pa.array([row[1] for row in rows], pa.string())
        write_deltalake(at(settings), pa.table({**columns, "text": text}), mode="append")
    given_rows, tables = [row for rows in commits for row in rows], Tables.of_database(settings)
    for bound, wanted in (
        (at_least("at", least, instants=True), lambda r: r[0] is not None and r[0] >= least),
        (less_than("n", least), lambda r: r[0] is not None and r[0] < least),
        (Equals("text", "b"), lambda r: r[1] == "b"),
    ):
        found = tables.read("fares", bounds=[bound])
        assert found is not None
        assert found.num_rows == sum(map(wanted, given_rows)), bound


def test_reading_uses_no_python_file_handles(
    tables: Tables, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads with such a handle aborted one process in ten at exit."""

    def opened(_: DeltaStorageHandler, path: str) -> pa.PythonFile:
        raise AssertionError(path)

    monkeypatch.setattr(DeltaStorageHandler, "open_input_file", opened)
    with pytest.raises(AssertionError):
        DeltaTable(at(settings)).to_pyarrow_dataset().to_table()
    assert len(numbers(tables.read("fares"))) == 6
    assert len(numbers(tables.read_new_files("fares", ["n"], set())[0])) == 6


def test_files_read_before_are_not_read_again(tables: Tables, settings: Settings) -> None:
    rows, seen = tables.read_new_files("fares", ["n"], set())
    assert len(numbers(rows)) == 6
    assert tables.read_new_files("fares", ["n"], seen) == (None, seen)
    write_deltalake(at(settings), pa.table({"n": [7]}), mode="append")
    assert numbers(tables.read_new_files("fares", ["n"], seen)[0]) == [7]


def test_a_recreated_table_is_detected(tables: Tables, settings: Settings) -> None:
    before = tables.table_id("fares")
    Path(at(settings)).rename(f"{at(settings)}_before")
    write_deltalake(at(settings), pa.table({"n": [7]}))
    assert numbers(tables.read("fares")) == [7]
    assert tables.table_id("fares") != before


def test_a_missing_table_has_no_rows(settings: Settings) -> None:
    tables = Tables.of_database(settings)
    assert tables.read("fares") is None
    assert tables.read_new_files("fares", ["n"], set()) == (None, set())
    assert tables.read_newest("fares", "n", None, 1) is None
    assert (
        tables.table_id("fares"),
        tables.newest_version("fares"),
        tables.column_types("fares"),
    ) == (
        None,
        None,
        {},
    )


def test_a_slow_read_is_not_repeated_at_once(settings: Settings) -> None:
    tables = Tables.of_database(settings, pause_factor=20)
    found = [
        tables.read_if_changed("x", [], lambda: time.sleep(0.2), dependency=n) for n in range(2)
    ]
    assert found == [None, None]
    tables.read_if_changed("x", [], lambda: pytest.fail("read again too soon"), dependency=3)
