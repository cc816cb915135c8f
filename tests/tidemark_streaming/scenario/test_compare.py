"""Differences between a result and an expectation, or another result, row by row."""

from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from helpers.model.oracle import simulate
from tidemark.base.instants import INFINITY, as_datetime
from tidemark_streaming.scenario.read.expectation import Expect
from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.read.values import is_equal
from tidemark_streaming.scenario.run.compare import (
    Difference,
    compare_results,
    find_differences,
    tabulate_differences,
)

OWN = sorted((Path(__file__).parents[3] / "tests" / "scenarios").glob("*.yaml"))
Rows = list[dict[str, Any]]


def result(windows: Rows, panes: Rows | None = None, late: Rows | None = None) -> dict[str, Any]:
    found = {"windows": windows, "panes": panes or [], "late": late or []}
    return {"name": "a", "watermark": "+infinity", **found}


def test_rows_of_derived_sources_are_compared() -> None:
    actual = {"derived": {"pairs": [{"k": "a"}, {"k": "b"}]}, "unjoined": {"pairs": []}}
    expected = Expect(derived={"pairs": [{"k": "a"}]}, unjoined={"pairs": [{"k": "c"}]})
    assert find_differences(expected, actual) == [
        Difference("derived pairs", None, {"k": "b"}),
        Difference("unjoined pairs", {"k": "c"}, None),
    ]
    batch, stream = ({**actual, "watermark": None, "derived": {"pairs": [{"k": k}]}} for k in "ab")
    assert compare_results(batch, batch) == []
    assert [d.part for d in compare_results(batch, stream)] == ["derived pairs"]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, None),
        (True, True),
        (4, 4),
        (4, 4.0),
        (4, "4.00"),
        (Decimal("11.1"), "11.10"),
        (Decimal("0.3"), 0.1 + 0.2),
        (0.3, 0.1 + 0.2),
        (1e300, 1e300 * (1 + 5e-10)),
        (float("nan"), float("nan")),
        (float("inf"), float("inf")),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00Z"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T02:00:00+02:00"),
        (datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=UTC), "2024-01-01T00:00:00.500000Z"),
        (as_datetime(INFINITY), "+infinity"),
        (datetime(2024, 1, 1), "2024-01-01 00:00:00"),  # noqa: DTZ001
        (date(2024, 1, 1), "2024-01-01"),
        ([Decimal("1.1"), None], ["1.10", None]),
        ([{"value": Decimal("1.1"), "count": 2}], [{"count": 2, "value": "1.10"}]),
        ("a", "a"),
    ],
)
def test_values_are_equal_by_their_type(expected: object, actual: object) -> None:
    assert is_equal(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, 0),
        (0, None),
        (0, False),
        (1, True),
        (4, 5),
        (9007199254740993, 9007199254740992),
        (4, "four"),
        (4, [4]),
        (Decimal("11.10"), "11.11"),
        (0.3, 0.3 * (1 + 2e-9)),
        (float("nan"), 0.0),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:01Z"),
        (datetime(2024, 1, 1, tzinfo=UTC), "+infinity"),
        (datetime(2024, 1, 1, tzinfo=UTC), "a"),
        (datetime(2024, 1, 1, tzinfo=UTC), 4),
        (date(2024, 1, 1), "2024-01-02"),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ([{"value": "a", "count": 2}], [{"value": "a", "count": 1}]),
        ("1.0", "1.00"),
    ],
)
def test_different_values_are_not_equal(expected: object, actual: object) -> None:
    assert not is_equal(expected, actual)


def test_row_order_and_unnamed_columns_do_not_matter() -> None:
    came = [{"name": "a", "n": 1, "revision": 0}, {"name": "b", "n": 2, "revision": 3}]
    expect = Expect(windows=[{"name": "b", "n": 2}, {"name": "a"}])
    assert find_differences(expect, result(came)) == []


def test_omitted_parts_are_ignored_but_empty_ones_must_be_empty() -> None:
    came = result([{"n": 1}], panes=[{"n": 1, "pane": 0}])
    assert find_differences(Expect(), came) == []
    assert find_differences(Expect(panes=[]), came) == [
        Difference("panes", None, {"n": 1, "pane": 0}),
    ]


def test_a_wrong_value_is_one_difference_with_its_column() -> None:
    came: Rows = [{"name": "a", "n": 1, "late_events": 0}, {"name": "b", "n": 2, "late_events": 0}]
    expect = Expect(windows=[{"name": "a", "n": 1}, {"name": "b", "n": 3}])
    assert find_differences(expect, result(came)) == [
        Difference("windows", {"name": "b", "n": 3}, came[1], ("n",)),
    ]


def test_missing_and_extra_rows_are_reported_if_none_are_similar() -> None:
    expect = Expect(windows=[{"name": "a"}, {"name": "b"}])
    assert find_differences(expect, result([{"name": "c"}, {"name": "a"}, {"name": "d"}])) == [
        Difference("windows", {"name": "b"}, None),
        Difference("windows", None, {"name": "c"}),
        Difference("windows", None, {"name": "d"}),
    ]


def test_one_unmatched_row_on_each_side_is_one_difference() -> None:
    expect = Expect(windows=[{"name": "a"}, {"name": "b"}])
    assert find_differences(expect, result([{"name": "c"}, {"name": "a"}])) == [
        Difference("windows", {"name": "b"}, {"name": "c"}, ("name",)),
    ]


def test_a_duplicate_row_is_an_extra_row() -> None:
    twice = result([{"name": "a", "n": 1}, {"name": "a", "n": 1}])
    assert find_differences(Expect(windows=[{"name": "a", "n": 1}]), twice) == [
        Difference("windows", None, {"name": "a", "n": 1}),
    ]


def test_rows_with_few_columns_leave_matches_to_rows_with_more() -> None:
    came = result([{"name": "a", "n": 1}, {"name": "b", "n": 1}])
    few: Rows = [{"n": 1}, {"n": 1, "name": "a"}]
    assert find_differences(Expect(windows=few), came) == []
    assert find_differences(Expect(windows=few[::-1]), came) == []


def test_rows_are_matched_by_window_and_pane() -> None:
    came: Rows = [
        {"pane": 0, "timing": "ON_TIME", "total": 18, "retraction": False},
        {"pane": 1, "timing": "LATE", "total": 12, "retraction": False},
    ]
    expect = Expect(panes=[{"pane": 0, "total": 12}, {"pane": 1, "total": 18}])
    found = find_differences(expect, result([], panes=came))
    assert [(d.actual, d.columns) for d in found] == [(came[0], ("total",)), (came[1], ("total",))]


@given(st.lists(st.sampled_from([{"n": 1}, {"n": 2}, {"n": 1, "k": "a"}, {"k": "b"}]), max_size=6))
def test_differences_are_empty_exactly_if_some_order_matches(expected: Rows) -> None:
    came: Rows = [{"n": n, "k": k} for n, k in ((1, "a"), (1, "b"), (2, "b"), (2, "a"))][::-1]

    def agrees(rows: Rows, left: Rows) -> bool:
        """Return whether the rows match in some order, by trying all orders."""
        if not rows:
            return not left
        fits = [i for i, row in enumerate(left) if rows[0].items() <= row.items()]
        return any(agrees(rows[1:], left[:i] + left[i + 1 :]) for i in fits)

    found = find_differences(Expect(windows=expected), result(came))
    assert (found == []) is agrees(expected, came)


def test_equal_results_have_no_differences() -> None:
    batch = result([{"n": 1, "mean": 0.1 + 0.2}, {"n": 2, "mean": None}])
    stream = result([{"n": 2, "mean": None}, {"n": 1, "mean": 0.3}])
    assert compare_results(batch, stream) == []


def test_different_results_have_differences_in_rows_and_watermark() -> None:
    batch = result([{"n": 1}], late=[{"v": "1.10"}])
    stream = {**result([{"n": 1}, {"n": 1}]), "watermark": None}
    assert compare_results(batch, stream) == [
        Difference("windows", None, {"n": 1}),
        Difference("late", {"v": "1.10"}, None),
        Difference("watermark", {"watermark": "+infinity"}, {"watermark": None}, ("watermark",)),
    ]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_the_oracle_gives_the_expected_results_of_each_scenario(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.expect is not None
    found = simulate(yaml.safe_load(path.read_text()))
    assert find_differences(scenario.expect, found, scenario.slack) == []


def test_the_explanation_shows_rows_columns_and_values() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    found = [
        Difference("windows", {"ts": at, "n": 3}, {"ts": "2024-01-01T00:00:00Z", "n": 1}, ("n",)),
        Difference("late", None, {"v": "1.10", "all": [None, {"k": 1}]}),
        Difference("panes", {"last": True}, None),
    ]
    console = Console(width=100, file=StringIO())
    with console.capture() as capture:
        console.print(tabulate_differences(found, title="a [scenario]"))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert (
        "\n".join(lines)
        == """\
a [scenario]
┏━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┓
┃ part    ┃ row                     ┃ column ┃ expected  ┃ came               ┃
┡━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━┩
│ windows │ ts=2024-01-01T00:00:00Z │ n      │ 3         │ 1                  │
├─────────┼─────────────────────────┼────────┼───────────┼────────────────────┤
│ late    │                         │        │ nothing   │ v=1.10             │
│         │                         │        │           │ all=[null, {k: 1}] │
├─────────┼─────────────────────────┼────────┼───────────┼────────────────────┤
│ panes   │                         │        │ last=true │ nothing            │
└─────────┴─────────────────────────┴────────┴───────────┴────────────────────┘"""
    )
