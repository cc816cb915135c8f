"""Windows that are selected by keys that a person writes as text."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.base.errors import DefinitionError
from tidemark.store.commits.conditions import Equals
from tidemark.store.committers.file_list import load_rows
from tidemark.store.key_choice import key_condition, select_keys
from tidemark_streaming.cli.console import format_time
from tidemark_streaming.cli.output import as_json

_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(10, 2): st.decimals(-(10**7), 10**7, places=2),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): _TIMES,
    pa.timestamp("us"): _TIMES.map(lambda t: t.replace(tzinfo=None)),
}


def as_shown(value: object) -> set[str]:
    """Return the texts by which the commands show a key."""
    text = as_json(value)
    shown = {json.loads(text) if text.startswith('"') else text, str(value)}
    return shown | {format_time(value)} if isinstance(value, datetime) else shown


@given(st.data(), st.sampled_from([*KINDS]))
@example(None, pa.float64())
def test_a_key_is_chosen_by_its_value_however_it_is_written(
    data: st.DataObject | None, kind: pa.DataType
) -> None:
    nasty = [1.0, math.nan, -0.0, 0.0, math.inf, 1e22, 0.1, None]
    values = nasty if data is None else data.draw(st.lists(KINDS[kind] | st.none(), max_size=4))
    rows = pa.table({"k": pa.array(values, kind), "n": pa.array(range(len(values)), pa.int64())})
    stored = rows["k"].to_pylist()
    for value in stored:
        equal = [n for n, other in enumerate(stored) if repr(other) == repr(value)]
        equal += [n for n, other in enumerate(stored) if other == value and n not in equal]
        for text in {None} if value is None else as_shown(value):
            assert select_keys(rows, {"k": text}, "a")["n"].to_pylist() == sorted(equal), text


def test_all_chosen_keys_must_be_equal() -> None:
    rows = pa.table({"a": [1, 1, None], "b": ["x", None, None]})
    assert select_keys(rows, {"a": "1", "b": None}, "t").num_rows == 1
    assert select_keys(rows, {}, "t").num_rows == 3


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "1.5"),
        (pa.int8(), "300"),
        (pa.bool_(), "yes"),
        (pa.decimal128(10, 2), "1.005"),
        (pa.timestamp("us", "UTC"), "yesterday"),
        (pa.date32(), "2026-02-30"),
        (pa.list_(pa.int64()), "[1]"),
    ],
    ids=str,
)
def test_a_text_of_another_type_is_refused(kind: pa.DataType, text: str) -> None:
    rows = pa.table({"k": pa.array([], kind)})
    with pytest.raises(
        DefinitionError, match=r"'k' of 'orders' (must be a value of|has the type list<)"
    ):
        select_keys(rows, {"k": text}, "orders")


def test_a_time_is_shown_with_its_fraction() -> None:
    assert format_time(datetime(2026, 1, 1, 10, tzinfo=UTC)) == "2026-01-01 10:00:00"
    assert format_time(datetime(999, 1, 1, 10, 0, 0, 5000, UTC)) == "0999-01-01 10:00:00.005000"


def test_keys_are_chosen_in_the_files_of_a_merge(tmp_path: Path) -> None:
    """Its files have other types of text than those of an append."""
    draw = {"s": ["x", "ü", None], "i": [1, 2, None], "f": [0.5, math.nan, None]}
    draw |= {"b": [True, False, None], "at": [datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 3)]}
    rows = pa.table({**draw, "n": [0, 1, 2]}).cast(
        pa.schema(
            {
                "s": pa.string(),
                "i": pa.int64(),
                "f": pa.float64(),
                "b": pa.bool_(),
                "at": pa.timestamp("us", "UTC"),
                "n": pa.int64(),
            }
        )
    )
    write_deltalake(str(tmp_path), rows.slice(0, 0))
    merge = DeltaTable(str(tmp_path)).merge(rows, "s.n = t.n", "s", "t")
    merge.when_not_matched_insert_all().execute()
    table = DeltaTable(str(tmp_path))
    assert pq.read_schema(table.file_uris()[0]).field("s").type != pa.string()
    types = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    for name in draw:
        for n, value in enumerate(rows[name].to_pylist()):
            text = None if value is None else str(value)
            found = load_rows(table, where=key_condition({name: text}, types, "orders"))
            assert found["n"].to_pylist() == [n]
            if name == "s" and text is not None:
                assert load_rows(table, [Equals(name, text)])["n"].to_pylist() == [n]
