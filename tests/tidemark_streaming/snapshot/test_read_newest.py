"""Reading the newest rows of a table with keys of any type, and rendering any value as JSON."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from tidemark.base.settings import Settings
from tidemark.store.rows import INSTANT, to_display
from tidemark_streaming.cli.output import as_json
from tidemark_streaming.snapshot.tables import Tables

LISTS = [[], [None], ["a"], ["a", None], [None, "a"], None]


def refuse(constant: str) -> None:
    raise AssertionError(constant)


def test_rows_are_ordered_by_list_and_struct_keys(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    rows = pa.table(
        {
            "window_start": pa.array([0] * len(LISTS), INSTANT),
            "l": pa.array(LISTS, pa.list_(pa.string())),
            "s": [{"x": each} for each in LISTS],
            "mean": [math.nan, math.inf, -math.inf, 1.5, None, 0.0],
        }
    )
    write_deltalake(f"{settings.warehouse}/{settings.database}/by_list", rows)
    for keys in (["l"], ["s"], ["l", "s"], ["mean", "s"]):
        found = Tables.of_database(settings).read_newest("by_list", "window_start", None, 10, keys)
        again = Tables.of_database(settings).read_newest("by_list", "window_start", None, 3, keys)
        assert found is not None
        assert again is not None
        assert again.equals(found.slice(0, 3))
        lists = found["l"].to_pylist()
        assert sorted(map(repr, lists)) == sorted(map(repr, LISTS))
        text = as_json(to_display(found))
        assert [row["l"] for row in json.loads(text, parse_constant=refuse)] == lists
    assert Tables.of_database(settings).column_types("by_list")["l"] == pa.list_(pa.string())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.tuples(each, each),
)


@given(VALUES)
def test_any_value_is_valid_json(value: Any) -> None:  # noqa: ANN401
    json.loads(as_json(value), parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([math.nan, math.inf, -math.inf], '["NaN", "Infinity", "-Infinity"]'),
        ({"a": b"\x00\xff", 1: Decimal("1.10")}, '{"a": "AP8=", "1": "1.10"}'),
    ],
)
def test_values_without_a_json_type_are_strings(value: object, text: str) -> None:
    assert as_json(value) == text
