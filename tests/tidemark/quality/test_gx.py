"""Tests of validation in memory with Great Expectations.

The result for a row does not depend on the number of rows or on its neighbors.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.base.errors import DefinitionError
from tidemark.define.expectations.expectation import Expectation
from tidemark.define.expectations.general import General, as_expectation
from tidemark.expect import between, column_greater, not_null, one_of
from tidemark.quality import gx

NAN, INF, BIG = math.nan, math.inf, 2**53
TIME = dt.datetime.fromisoformat("2026-01-01T00:00:00")
FIRST, LAST = TIME.replace(year=1), TIME.replace(year=9999)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [None, 0, -1, 5, BIG, BIG + 1, 2**63 - 1, -(2**63)]),
    "small": (pa.int32(), [None, 0, -1, 5, 2**31 - 1]),
    "price": (
        pa.decimal128(38, 2),
        [None, *map(Decimal, ("0", "0.10", "-0.10", "5.00", "1e35", "9007199254740993.00"))],
    ),
    "double": (
        pa.float64(),
        [None, 0.0, -0.0, 0.1, 5.0, 5e-324, 1e308, float(BIG), NAN, INF, -INF],
    ),
    "single": (pa.float32(), [None, 0.0, 0.1, 5.0, NAN, INF]),
    "time": (
        pa.timestamp("us", "UTC"),
        [None, TIME, TIME + dt.timedelta(microseconds=1), FIRST, LAST],
    ),
    "day": (pa.date32(), [None, TIME.date(), dt.date.min, dt.date.max]),
    "text": (pa.string(), [None, "", "null", "NaN", "a", "ü", "A"]),
    "flag": (pa.bool_(), [None, True, False]),
}
BOUNDS: dict[str, list[Any]] = {
    "whole": [0, 5, 0.5, BIG, BIG + 1, Decimal("4.9")],
    "small": [0, 5, 0.5],
    "price": [0, 0.1, -0.1, 5, Decimal("0.1"), BIG, BIG + 1, 1e35],
    "double": [0, 0.1, 5, Decimal("0.1"), INF, BIG + 1, 1e308],
    "single": [0, 0.1, 5],
    "time": [
        TIME,
        TIME.replace(tzinfo=dt.UTC),
        TIME.astimezone(dt.timezone(dt.timedelta(hours=5))),
    ],
    "day": [TIME.date()],
}


def nearest(bound: Any, column: str) -> Any:  # noqa: ANN401
    """Convert a bound to the column's type, as the documentation describes."""
    if column == "price" and isinstance(bound, float):
        return Decimal(repr(bound))
    if column == "double" and isinstance(bound, Decimal):
        return float(bound)
    if column == "single":
        return pa.scalar(bound, pa.float32()).as_py()
    if column == "time" and bound.tzinfo is not None:
        return bound.astimezone(dt.UTC).replace(tzinfo=None)
    return bound


def passes_between(column: str, least: Any, most: Any) -> Callable[[Any], bool]:  # noqa: ANN401
    low, high = (None if b is None else nearest(b, column) for b in (least, most))
    return lambda v: v is None or bool((low is None or low <= v) and (high is None or v <= high))


def one_is(given: Any, value: Any) -> bool:  # noqa: ANN401
    return given == value or (given != given and value != value)


def passes_one_of(column: str, allowed: list[Any]) -> Callable[[Any], bool]:
    those = [nearest(a, column) for a in allowed]
    return lambda v: v is None or any(one_is(a, v) for a in those)


CASES: list[tuple[Expectation, str, Callable[[Any], bool]]] = [
    *((not_null(column), column, lambda v: v is not None) for column in VALUES),
    *(
        (between(column, least, most), column, passes_between(column, least, most))
        for column, bounds in BOUNDS.items()
        for bound in bounds
        for least, most in ((bound, None), (None, bound), (bound, bound))
    ),
    *(
        (one_of(column, allowed), column, passes_one_of(column, allowed))
        for column, allowed in {
            "whole": [BIG, 5],
            "small": [5, 1.5],
            "price": [0.1, Decimal("5"), BIG],
            "double": [0, 0.1, NAN],
            "single": [0.1],
            "time": [TIME],
            "day": [TIME.date()],
            "text": ["", "NaN", "A"],
            "flag": [True],
        }.items()
    ),
]


def table(column: str, values: Sequence[Any]) -> pa.Table:
    kind = VALUES[column][0]
    return pa.table(
        {gx.ROW: pa.array(range(len(values)), pa.int64()), column: pa.array(values, kind)}
    )


def chunked(rows: pa.Table, size: int) -> gx.Chunks:
    def chunks(names: Sequence[str] | None) -> Iterable[pa.Table]:
        some = rows if names is None else rows.select([*names])
        return [some.slice(at, size) for at in range(0, max(rows.num_rows, 1), size)]

    return chunks


def failing(rows: pa.Table, expectations: Sequence[Expectation], size: int) -> list[set[int]]:
    general = [e for e in expectations if isinstance(e, General)]
    assert len(general) == len(expectations)
    found = gx.validate_chunks(chunked(rows, size), general)
    assert all(f.success == (not f.rows) for f in found)
    return [{row for row, _ in f.rows or []} for f in found]


@pytest.mark.parametrize("column", VALUES)
def test_each_value_passes_or_fails_independently(column: str) -> None:
    values = [as_read(v, VALUES[column][0]) for v in VALUES[column][1]]
    cases = [(e, passes) for e, of, passes in CASES if of == column]
    found = failing(table(column, values), [e for e, _ in cases], 1000)
    for (expectation, passes), rows in zip(cases, found, strict=True):
        assert rows == {n for n, v in enumerate(values) if not passes(v)}, expectation


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_neighboring_values_change_no_result(data: st.DataObject) -> None:
    """Use random values in any order and any chunks."""
    column = data.draw(st.sampled_from(["whole", "price", "double"]))
    drawn = {
        "whole": st.integers(-(2**63), 2**63 - 1),
        "price": st.decimals(-(10**30), 10**30, places=2),
        "double": st.floats(),
    }[column]
    values = data.draw(st.lists(drawn | st.none() | st.sampled_from(VALUES[column][1]), max_size=9))
    bound = data.draw(drawn.filter(lambda v: v == v) | st.sampled_from(BOUNDS[column]))
    allowed = data.draw(st.lists(drawn | st.sampled_from(BOUNDS[column]), max_size=3))
    cases = [
        (between(column, bound), passes_between(column, bound, None)),
        (between(column, max_value=bound), passes_between(column, None, bound)),
        (one_of(column, allowed), passes_one_of(column, allowed)),
        (not_null(column), lambda v: v is not None),
    ]
    size = data.draw(st.integers(1, 5))
    found = failing(table(column, values), [e for e, _ in cases], size)
    for (expectation, passes), rows in zip(cases, found, strict=True):
        assert rows == {n for n, v in enumerate(values) if not passes(v)}, expectation


def as_read(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401
    return pa.scalar(value, kind).as_py() if pa.types.is_float32(kind) else value


@pytest.mark.parametrize("pair", [("whole", "price"), ("price", "double"), ("double", "whole")])
def test_columns_of_different_types_compare_exactly(pair: tuple[str, str]) -> None:
    left, right = pair
    both = [(a, b) for a in VALUES[left][1] for b in VALUES[right][1]]
    rows = pa.table(
        {
            gx.ROW: pa.array(range(len(both)), pa.int64()),
            left: pa.array([a for a, _ in both], VALUES[left][0]),
            right: pa.array([b for _, b in both], VALUES[right][0]),
        }
    )
    (found,) = failing(rows, [column_greater(left, right)], 50)
    assert found == {
        n for n, (a, b) in enumerate(both) if a is not None and b is not None and not exceeds(a, b)
    }


def exceeds(a: Any, b: Any) -> bool:  # noqa: ANN401
    return all(v == v for v in (a, b)) and a > b


def test_observed_values_are_reported_exactly() -> None:
    (finding,) = gx.validate_chunks(
        chunked(table("double", [NAN, None, -INF]), 9), [adapted_between("double")]
    )
    assert finding.rows == [(0, "NaN"), (2, "-inf")]
    (finding,) = gx.validate_chunks(
        chunked(table("whole", [BIG + 1]), 9), [adapted_between("whole")]
    )
    assert finding.rows == [(0, "9007199254740993")]


def adapted_between(column: str) -> General:
    expectation = between(column, 0, 100)
    assert isinstance(expectation, General)
    return expectation


def test_each_thread_validates_its_own_rows() -> None:
    expectation = between("n", max_value=0)
    assert isinstance(expectation, General)

    def judged(number: int) -> set[int]:
        own = range(100 * number, 100 * number + 50)
        rows = pa.table({gx.ROW: pa.array(own, pa.int64()), "n": [1] * len(own)})
        (finding,) = gx.validate_chunks(chunked(rows, 100), [expectation])
        return {row for row, _ in finding.rows or []} ^ {*own}

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(judged, range(40))] == [set()] * 40


@pytest.mark.parametrize("size", [1, 9])
def test_row_conditions_and_mostly_hold_across_chunks(gxe: Any, size: int) -> None:  # noqa: ANN401
    column = import_module("great_expectations.expectations.row_conditions").Column
    of_a = gxe.ExpectColumnValuesToBeBetween(
        column="n", max_value=1, row_condition=column("c") == "a"
    )
    some = gxe.ExpectColumnValuesToBeBetween(column="n", max_value=1, mostly=0.25)
    most = gxe.ExpectColumnValuesToBeBetween(column="n", max_value=1, mostly=0.5)
    rows = pa.table(
        {gx.ROW: [0, 1, 2, 3, 4], "n": [1, 5, 7, 9, None], "c": ["a", "a", "b", "b", "b"]}
    )
    found = gx.validate_chunks(
        chunked(rows, size), [as_expectation(each) for each in (of_a, some, most)]
    )
    assert [(f.success, sorted(row for row, _ in f.rows or [])) for f in found] == [
        (False, [1]),
        (True, []),
        (False, [1, 2, 3]),
    ]


@pytest.mark.parametrize("size", [1, 9])
def test_expectations_about_all_rows_see_all_chunks(gxe: Any, size: int) -> None:  # noqa: ANN401
    rows = pa.table({gx.ROW: [0, 1, 2, 3], "n": [BIG + 1, None, 2, 2], "x": [0.5, NAN, None, 0.5]})
    asked = [
        gxe.ExpectColumnValuesToBeUnique(column="n"),
        gxe.ExpectColumnMaxToBeBetween(column="n", max_value=BIG),
        gxe.ExpectTableRowCountToEqual(value=4),
        gxe.ExpectColumnMeanToBeBetween(column="n", min_value=0),
        gxe.ExpectColumnUniqueValueCountToBeBetween(column="x", max_value=2),
    ]
    found = gx.validate_chunks(chunked(rows, size), [as_expectation(each) for each in asked])
    told = [
        (f.success, None if f.rows is None else sorted(row for row, _ in f.rows)) for f in found
    ]
    assert told == [(False, [2, 3]), (False, None), (True, None), (True, None), (True, None)]


NOTHING: dict[str, tuple[dict[str, Any], bool]] = {
    # A statistic of no values meets no bound, and an empty set has no wrong value.
    "ExpectColumnMeanToBeBetween": ({"min_value": 0}, False),
    "ExpectColumnMedianToBeBetween": ({"min_value": 0}, False),
    "ExpectColumnStdevToBeBetween": ({"min_value": 0}, False),
    "ExpectColumnMinToBeBetween": ({"min_value": 0}, False),
    "ExpectColumnMaxToBeBetween": ({"min_value": 0}, False),
    "ExpectColumnQuantileValuesToBeBetween": (
        {"quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 9]]}},
        False,
    ),
    "ExpectColumnMostCommonValueToBeInSet": ({"value_set": [1]}, False),
    "ExpectColumnDistinctValuesToContainSet": ({"value_set": [1]}, False),
    "ExpectColumnSumToBeBetween": ({"max_value": 9}, True),
    "ExpectColumnDistinctValuesToBeInSet": ({"value_set": [1]}, True),
    "ExpectColumnUniqueValueCountToBeBetween": ({"max_value": 9}, True),
    "ExpectColumnValueZScoresToBeLessThan": ({"threshold": 3, "double_sided": True}, True),
    "ExpectColumnValuesToBeUnique": ({}, True),
}
"""Expectations about all rows, and whether they hold for a column without values."""


@pytest.mark.parametrize("column", ["whole", "price", "double"])
def test_a_column_without_values_has_a_result(gxe: Any, column: str) -> None:  # noqa: ANN401
    """GX 12026 and 2726: no values, because all are null or no row meets the condition."""
    none_of = import_module("great_expectations.expectations.row_conditions").Column(column) == 77
    expected = [held for _, held in NOTHING.values()]
    for rows, more in (
        (table(column, [None, None]), {}),
        (table(column, [VALUES[column][1][1]] * 3), {"row_condition": none_of}),
    ):
        asked = [
            as_expectation(getattr(gxe, kind)(column=column, **given, **more))
            for kind, (given, _) in NOTHING.items()
        ]
        assert [f.success for f in gx.validate_chunks(chunked(rows, 9), asked)] == expected


@pytest.mark.parametrize("column", ["whole", "price", "double"])
def test_an_undefined_or_zero_variance_yields_no_outlier(gxe: Any, column: str) -> None:  # noqa: ANN401
    """GX 12144: one value, next to nulls or alone, and values that are all equal."""
    expectation = gxe.ExpectColumnValueZScoresToBeLessThan(
        column=column, threshold=2, double_sided=True
    )
    value = VALUES[column][1][1]
    for values in ([value], [value, None, None], [value] * 5):
        (found,) = gx.validate_chunks(
            chunked(table(column, values), 9), [as_expectation(expectation)]
        )
        assert (found.success, found.rows) == (True, [])


TEXTS = [None, '{"a": 1}', '{"a": "x"}', "{", "", "[" * 100_000, "😀"]


@pytest.mark.parametrize("size", [1, 9])
def test_a_text_that_is_not_json_fails_its_row_alone(gxe: Any, size: int) -> None:  # noqa: ANN401
    """The library raises for it, which would stop the asset."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    match = gxe.ExpectColumnValuesToMatchJsonSchema(column="text", json_schema=schema)
    assert failing(table("text", TEXTS), [as_expectation(match)], size) == [{2, 3, 4, 5, 6}]
    wrong = gxe.ExpectColumnValuesToMatchJsonSchema(column="text", json_schema={"type": 1})
    with pytest.raises(DefinitionError, match="can't be validated"):
        failing(table("text", TEXTS), [as_expectation(wrong)], size)


def test_instants_of_any_time_zone_and_dates_as_text_are_compared(gxe: Any) -> None:  # noqa: ANN401
    """GX 1494, 1509: an instant with a time zone in any argument, next to nulls."""
    column = import_module("great_expectations.expectations.row_conditions").Column
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).astimezone(dt.timezone(dt.timedelta(hours=5)))
    later = [TIME.replace(hour=hour) for hour in (11, 12, 13)]
    rows = table("time", [*later, None]).append_column(
        "day", pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(1, 1, 1)])
    )
    since = (column("time") >= noon) & (column("time").is_not_null())
    assert failing(
        rows,
        [
            between("time", min_value=noon),
            one_of("time", [noon, "no time"]),
            not_null("day", row_condition=column("time") >= noon),
            as_expectation(gxe.ExpectColumnValuesToBeNull(column="day", row_condition=since)),
            one_of("day", ["2026-01-01", dt.date(2026, 1, 2), "no date"]),
        ],
        9,
    ) == [{0}, {0, 2}, {2}, {1}, {3}]
    together = [
        gxe.ExpectColumnMaxToBeBetween(column="time", max_value=noon),
        gxe.ExpectColumnMaxToBeBetween(column="day", max_value=dt.date(2026, 1, 2)),
    ]
    found = gx.validate_chunks(chunked(rows, 9), [as_expectation(each) for each in together])
    assert [(f.success, f.rows) for f in found] == [(False, None), (True, None)]


def test_sets_of_values_report_what_is_unexpected_and_what_is_missing(gxe: Any) -> None:  # noqa: ANN401
    """GX 11913: the library observes nothing."""
    rows = table("whole", [1, 2, 2, None])
    asked = [
        gxe.ExpectColumnDistinctValuesToBeInSet(column="whole", value_set=[1]),
        gxe.ExpectColumnDistinctValuesToContainSet(column="whole", value_set=[1, 7]),
        gxe.ExpectColumnDistinctValuesToEqualSet(column="whole", value_set=[1, 7]),
        gxe.ExpectColumnDistinctValuesToEqualSet(column="whole", value_set=[1, 2]),
    ]
    found = gx.validate_chunks(chunked(rows, 9), [as_expectation(each) for each in asked])
    assert [(f.success, f.rows or None, f.observed) for f in found] == [
        (False, None, "unexpected values: 2"),
        (False, None, "missing values: 7"),
        (False, None, "unexpected values: 2; missing values: 7"),
        (True, None, None),
    ]


NUMBERS = st.one_of(st.none(), st.integers(0, 3), st.just(BIG + 1))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6), st.integers(1, 6))
@settings(max_examples=12, deadline=None)
def test_nulls_fail_sums_and_are_skipped_in_pairs(
    rows: list[tuple[int | None, int | None]], size: int
) -> None:
    """GX 12095: any rows may be skipped, at any position among the others."""
    gxe = import_module("great_expectations.expectations")
    told = pa.table(
        {
            gx.ROW: pa.array(range(len(rows)), pa.int64()),
            "a": pa.array([a for a, _ in rows], pa.int64()),
            "b": pa.array([b for _, b in rows], pa.decimal128(38, 2)),
        }
    )
    total = gxe.ExpectMulticolumnSumToEqual(
        column_list=["a", "b"], sum_total=4, ignore_row_if="never"
    )
    pairs = gxe.ExpectColumnPairValuesToBeInSet(
        column_A="a",
        column_B="b",
        value_pairs_set=[(1, 1), (BIG + 1, 2)],
        ignore_row_if="either_value_is_missing",
    )
    wrong_sums, wrong_pairs = failing(told, [as_expectation(total), as_expectation(pairs)], size)
    null = {n for n, row in enumerate(rows) if None in row}
    known = {n: row for n, row in enumerate(rows) if n not in null}
    assert wrong_sums == null | {n for n, (a, b) in known.items() if (a or 0) + (b or 0) != 4}
    assert wrong_pairs == {n for n, row in known.items() if row not in ((1, 1), (BIG + 1, 2))}
