"""Expectations are checked where they are declared."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support import PER_MINUTE
from tidemark import quality as q
from tidemark.base.errors import DefinitionError
from tidemark.define.windows import Session
from tidemark.quality import Expectation


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: q.between("delay", 0, 1),
            r"Asset 'per_minute': expectation between\(delay, 0, 1\) looks at the column 'delay', "
            "which its rows don't have; they have sensor, n, high,",
        ),
        (lambda: q.between("n"), r"between\(n\) has no bound"),
        (lambda: q.not_null("n", level="fatal"), "level is 'error' or 'warning', not 'fatal'"),
        (lambda: q.calm(0.1, "speed"), "looks at the column 'speed'"),
        (lambda: q.calm(0), "share of calm is more than 0"),
        (lambda: q.volume_within(0.3, of="some day"), "'some day' is not a duration"),
        (lambda: q.volume_within(0.3, of="-1 day"), "looks back in time, not by '-1 day'"),
        (lambda: q.volume_within(0.3, of="1 day", over=0), "1 window or more, not 0"),
        (lambda: q.no_gap(0), "a silence of 1 window or more, not 0"),
        (lambda: "between", "'between' is no expectation: use the functions of tidemark.quality"),
    ],
)
def test_an_expectation_that_cannot_be(make: Callable[[], Expectation], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        replace(PER_MINUTE, expectations=(make(),))


def test_sessions_have_no_gaps_to_count() -> None:
    with pytest.raises(DefinitionError, match="no_gap counts windows that follow each other"):
        replace(PER_MINUTE, window=Session("1 minute"), expectations=(q.no_gap(2),))


def test_an_expectation_is_given_once() -> None:
    with pytest.raises(DefinitionError, match=r"unique\(\) is given twice"):
        replace(PER_MINUTE, expectations=(q.unique(), q.unique()))


def test_any_class_of_great_expectations_is_an_expectation(gxe: Any) -> None:  # noqa: ANN401
    strict = gxe.ExpectColumnValuesToBeBetween(column="n", min_value=1, mostly=0.9)
    mild = gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="most", column_B="least", severity="warning"
    )
    one, two = replace(PER_MINUTE, expectations=(strict, mild)).expectations
    assert one.name == "ExpectColumnValuesToBeBetween(column='n', mostly=0.9, min_value=1.0)"
    assert (one.level, one.columns) == ("error", ("n",))
    assert (two.level, two.columns) == ("warning", ("most", "least"))
    with pytest.raises(DefinitionError, match="looks at the column 'speed'"):
        replace(
            PER_MINUTE,
            expectations=(gxe.ExpectColumnMeanToBeBetween(column="speed", max_value=1),),
        )
