"""A time outside the years 1 to 9999, or a text that is not UTF-8, makes its row a dead letter."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.engine.queries.requests import to_dataframe
from tidemark.store.rows import fetch_rows
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import DEAD
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.ingest.value_checks import check_values
from tidemark_streaming.payloads.column_types import arrow_type

DAY = 86_400_000_000
FIRST, LAST = BEGINNING // DAY, INFINITY // DAY
DAYS = st.one_of(st.sampled_from([FIRST - 1, FIRST, LAST, LAST + 1]), st.integers(-(10**6), 10**7))
TIMES = st.one_of(
    st.sampled_from([BEGINNING - 1, BEGINNING, INFINITY, INFINITY + 1, -(2**63), 2**63 - 1]),
    st.integers(-(2**63), 2**63 - 1),
)
SMALL = st.integers(0, 3)


def or_null(values: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return st.one_of(st.none(), values)


PAIRS = st.lists(st.tuples(SMALL, or_null(TIMES)), max_size=3, unique_by=lambda pair: pair[0])
VALUES: dict[str, tuple["st.SearchStrategy[Any]", pa.DataType]] = {
    "TIMESTAMP": (TIMES, pa.int64()),
    "TIMESTAMP_NTZ": (TIMES, pa.int64()),
    "DATE": (DAYS, pa.int32()),
    "ARRAY<TIMESTAMP>": (st.lists(or_null(TIMES), max_size=3), pa.list_(pa.int64())),
    "ARRAY<ARRAY<DATE>>": (
        st.lists(or_null(st.lists(or_null(DAYS), max_size=2)), max_size=3),
        pa.list_(pa.list_(pa.int32())),
    ),
    "STRUCT<n: BIGINT, t: TIMESTAMP>": (
        st.fixed_dictionaries({"n": SMALL, "t": or_null(TIMES)}),
        pa.struct({"n": pa.int64(), "t": pa.int64()}),
    ),
    "MAP<INT, TIMESTAMP>": (PAIRS, pa.map_(pa.int32(), pa.int64())),
    "BIGINT": (TIMES, pa.int64()),
}
NO_ENGINE = cast(SparkSession, None)


def source(**columns: str) -> Source:
    watermark = BoundedOutOfOrderness("0 seconds")
    return Source("edges", {"at": "TIMESTAMP", **columns}, "at", watermark)


def table(columns: dict[str, list[Any]], kinds: dict[str, str]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        plain = pa.array(values, VALUES[kinds[name]][1])
        # Cast the bits, because Arrow does not check times there.
        arrays[name] = plain.cast(arrow_type(kinds[name]))
    return pa.table(arrays)


TEXTS = {
    "a": "STRING",
    "b": "ARRAY<STRING>",
    "c": "STRUCT<n: INT, s: STRING>",
    "d": "MAP<STRING, INT>",
    "e": "MAP<INT, STRING>",
}


def text_rows() -> pa.Table:
    """Return a valid row, and for each column of `TEXTS` a row in which it is not UTF-8."""
    rows = len(TEXTS) + 1
    numbers, ends = (pa.array(range(count), pa.int32()) for count in (rows, rows + 1))

    def texts(broken: int) -> pa.StringArray:
        raw = pa.array([b"\xff" if row == broken else b"ok" for row in range(rows)], pa.binary())
        return pa.StringArray.from_buffers(rows, *raw.buffers()[1:])

    return pa.table(
        {
            "a": texts(1),
            "b": pa.ListArray.from_arrays(ends, texts(2)),
            "c": pa.StructArray.from_arrays([numbers, texts(3)], ["n", "s"]),
            "d": pa.MapArray.from_arrays(ends, texts(4), numbers),
            "e": pa.MapArray.from_arrays(ends, numbers, texts(5)),
        }
    )


def test_texts_that_are_not_utf8_are_dead_letters_in_memory() -> None:
    rows = text_rows()
    texts = [f"The field '{name}' has a text that is not valid UTF-8." for name in TEXTS]
    for part, wanted in ((rows, [None, *texts]), (rows.slice(2), texts[1:])):
        found = check_values(source(**TEXTS), part)
        assert isinstance(found, pa.Table)
        assert reasons(found) == wanted


def is_outside(value: Any, kind: str) -> bool:  # noqa: ANN401 (any value)
    if value is None or kind == "BIGINT":
        return False
    if isinstance(value, dict):
        return is_outside(value["t"], kind)
    if isinstance(value, tuple):
        return is_outside(value[1], kind)
    if isinstance(value, list):
        return any(is_outside(each, kind) for each in value)
    return not (FIRST <= value <= LAST if "DATE" in kind else BEGINNING <= value <= INFINITY)


def reasons(rows: pa.Table) -> list[str | None]:
    return [None if letter is None else letter["reason"] for letter in rows[DEAD].to_pylist()]


@settings(max_examples=30, deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", VALUES)
def test_times_out_of_range_are_dead_letters_in_memory(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(or_null(VALUES[kind][0]), max_size=5))
    rows = table({"x": values}, {"x": kind})
    # A slice of a table has its values elsewhere in the same buffers.
    for part, some in ((rows, values), (rows.slice(1), values[1:])):
        found = check_values(source(x=kind), part)
        if kind == "BIGINT":
            assert found is part
            continue
        assert isinstance(found, pa.Table)
        assert [r is not None for r in reasons(found)] == [is_outside(v, kind) for v in some]


def test_times_out_of_range_in_a_delta_table_are_dead_letters(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    late, early = INFINITY + 1, BEGINNING - 1
    kinds = {
        "a": "TIMESTAMP",
        "b": "ARRAY<ARRAY<DATE>>",
        "c": "STRUCT<n: BIGINT, t: TIMESTAMP>",
        "d": "MAP<INT, TIMESTAMP>",
        "e": "TIMESTAMP_NTZ",
    }
    good = {"a": 0, "b": [[0], None], "c": {"n": 1, "t": None}, "d": [(1, INFINITY)], "e": 0}
    none = dict.fromkeys(kinds)
    faults = [
        {"a": late},
        {"b": [None, [0, LAST + 1]]},
        {"c": {"n": 1, "t": early}},
        {"d": [(1, 0), (2, late)]},
        {"e": early},
    ]
    drawn = [good, none, *({**good, **fault} for fault in faults)]
    rows = table({n: [row[n] for row in drawn] for n in kinds}, kinds)
    rows = rows.add_column(0, "at", pa.array(range(len(drawn))).cast(arrow_type("TIMESTAMP")))
    of = source(**kinds)
    texts = [f"The field '{name}' has a time outside the years 1 to 9999." for name in "abcde"]
    wanted = [None, None, *texts]
    for given_rows in (rows, to_dataframe(warehouse.spark, rows)):
        assert reasons(fetch_rows(check_values(of, given_rows))) == wanted
    broken = text_rows()
    not_utf8 = [f"The field '{name}' has a text that is not valid UTF-8." for name in TEXTS]
    for given_rows in (broken, to_dataframe(warehouse.spark, broken)):
        assert reasons(fetch_rows(check_values(source(**TEXTS), given_rows))) == [None, *not_utf8]
    write_deltalake(tmp_path / "table", rows)
    (commit,) = ingest(warehouse, DeltaConnector(of, str(tmp_path / "table")))
    assert (commit.arrivals[0].rows, commit.arrivals[0].dead_letters) == (2, 5)
    letters = warehouse.load_rows(of.dead_letters_table).sort_by("position")
    assert letters["reason"].to_pylist() == texts
