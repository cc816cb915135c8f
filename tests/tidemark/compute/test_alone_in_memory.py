"""A partial that is alone in its window is its merged partial, with the types of a merge."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.compute import in_memory

KEYS = ["window_start", "key"]
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**40), 2**40),
    pa.float64(): st.just(-0.0) | st.floats(allow_nan=False, allow_infinity=False),
    pa.decimal128(10, 2): st.decimals(-99, 99, places=2).map(Decimal),
    pa.string(): st.text(max_size=3),
    pa.timestamp("us", tz="UTC"): st.integers(0, 2**50),
}
ADDABLE = [pa.int8(), pa.int64(), pa.float64(), pa.decimal128(10, 2)]
FUNCTIONS = [(t, f) for t in VALUES for f in ("min", "max")] + [(t, "sum") for t in ADDABLE]


@pytest.mark.parametrize(("kind", "function"), FUNCTIONS, ids=str)
@given(data=st.data())
def test_the_result_is_that_of_a_merge(
    kind: pa.DataType, function: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=8))
    partials = pa.table(
        {
            "window_start": pa.array(range(len(values)), pa.timestamp("us", tz="UTC")),
            "key": pa.array([None if n % 3 else "k" for n in range(len(values))], pa.string()),
            "value": pa.array(values, kind),
            "firing": pa.array(range(len(values)), pa.int64()),
        }
    )
    aggregations = [("value", function), ("firing", "count_distinct")]
    assert in_memory._are_alone(partials, KEYS)
    merged = in_memory._merge_partials(partials, KEYS, aggregations)
    alone = in_memory._skip_merge(partials, KEYS, aggregations).select(merged.column_names)
    assert alone.schema == merged.schema
    # The texts also show the sign of zero.
    assert str(alone.to_pylist()) == str(merged.to_pylist())


def test_two_partials_of_a_window_are_not_alone() -> None:
    starts = pa.array([0, 1, 0], pa.timestamp("us", tz="UTC"))
    partials = pa.table({"window_start": starts, "key": pa.nulls(3, pa.string())})
    assert not in_memory._are_alone(partials, KEYS)
