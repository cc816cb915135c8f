"""Tests of file statistics, which show if some or all rows of a file may match a condition."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tidemark.store.commits.conditions import Equals, InRanges

NUMBERS = InRanges("n", ((0, 10), (20, 30)), instants=False)


def file(low: object, high: object, nulls: int | None = 0) -> dict[str, Any]:
    return {"min.n": low, "max.n": high, "null_count.n": nulls}


@pytest.mark.parametrize(
    ("listed", "some", "every"),
    [
        (file(0, 9), True, True),
        (file(0, 10), True, False),
        (file(-1, 9), True, False),
        (file(10, 19), False, False),
        (file(5, 25), True, False),
        (file(20, 29, 1), True, False),
        (file(20, 29, None), True, False),
        (file(None, None, 7), True, False),
        ({}, True, False),
    ],
)
def test_number_ranges_are_compared_with_statistics(
    listed: dict[str, Any], some: bool, every: bool
) -> None:
    assert NUMBERS.may_hold(listed) == some
    assert NUMBERS.holds_for_file(listed) == every


def test_an_empty_list_of_ranges_matches_every_file() -> None:
    for listed in (file(0, 9), {}):
        assert InRanges("n", ()).may_hold(listed)
        assert InRanges("n", ()).holds_for_file(listed)


def test_truncated_instants_may_be_up_to_a_millisecond_later() -> None:
    second = 1_000_000
    at = datetime.fromtimestamp(1, UTC)
    bound = InRanges("n", ((0, second + 999),))
    assert bound.may_hold(file(at, at))
    assert not bound.holds_for_file(file(at, at))
    assert InRanges("n", ((0, second + 1000),)).holds_for_file(file(at, at))


def test_a_text_may_lie_between_a_files_bounds() -> None:
    def texts(low: str | None, high: str | None) -> dict[str, Any]:
        return {"min.id": low, "max.id": high, "null_count.id": 0}

    bound = Equals("id", "flights:12:3")
    assert bound.may_hold(texts("flights:12:0", "flights:12:7"))
    assert bound.may_hold(texts(None, None))
    assert bound.may_hold({})
    assert not bound.may_hold(texts("flights:13:0", "flights:9:7"))
    assert not bound.may_hold(texts("a", "b"))
    # Statistics may contain only the beginning of a long text.
    assert not bound.holds_for_file(texts("flights:12:3", "flights:12:3"))
