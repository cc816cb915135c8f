"""Tests of the checks that run when an expectation is declared."""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from helpers.data.support import PER_MINUTE
from tidemark import expect as q
from tidemark.base.errors import DefinitionError
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.windows import Session
from tidemark.expect import Expectation


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: q.between("delay", 0, 1),
            r"Asset 'per_minute': expectation between\(delay, 0, 1\) reads the column 'delay', "
            "which its rows don't have; they have: sensor, n, high,",
        ),
        (lambda: q.between("n"), r"between\(n\) has no bound: give `min_value` or `max_value`"),
        (lambda: q.between("n", 10, 0), r"between\(n\): no value is from 10 to 0; swap"),
        (lambda: q.between("n", "a", 1), r"bounds must have one type \(got 'a' and 1\)"),
        (lambda: q.between("n", 0, math.nan), r"has the bound NaN"),
        (lambda: q.not_null("n", level="fatal"), "must be 'error' or 'warning' \\(got 'fatal'\\)"),
        (lambda: q.max_change_after_close(0.1, "speed"), "reads the column 'speed'"),
        (
            lambda: q.max_change_after_close(0),
            "max_change_after_close: `share` must be a finite number greater than 0",
        ),
        (lambda: q.volume_within(0.3, of="some day"), "'some day' is not a duration"),
        (lambda: q.volume_within(0.3, of="-1 day"), "`of` must be .* \\(got '-1 day'\\)"),
        (lambda: q.volume_within(0.3, of="1 day", over=0), "`over` must be 1 or more \\(got 0\\)"),
        (lambda: q.no_gap(0), "`windows` must be 1 or more \\(got 0\\)"),
        (lambda: "between", "'between' is not an expectation: use a function of tidemark.expect"),
    ],
)
def test_an_invalid_expectation_is_refused(make: Callable[[], Expectation], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        replace(PER_MINUTE, expectations=(make(),))


def test_no_gap_is_refused_for_sessions() -> None:
    with pytest.raises(DefinitionError, match="no_gap needs consecutive windows"):
        replace(PER_MINUTE, window=Session("1 minute"), expectations=(q.no_gap(2),))


def test_a_duplicate_expectation_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"unique_key\(\) is given twice"):
        replace(PER_MINUTE, expectations=(q.unique_key(), q.unique_key()))


def test_great_expectations_classes_are_accepted(gxe: Any) -> None:  # noqa: ANN401
    strict = gxe.ExpectColumnValuesToBeBetween(column="n", min_value=1, mostly=0.9)
    mild = gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="most", column_B="least", severity="warning"
    )
    one, two = replace(PER_MINUTE, expectations=(strict, mild)).expectations
    assert one.name == "ExpectColumnValuesToBeBetween(column='n', mostly=0.9, min_value=1.0)"
    assert (one.level, one.columns) == ("error", ("n",))
    assert (two.level, two.columns) == ("warning", ("most", "least"))
    with pytest.raises(DefinitionError, match="reads the column 'speed'"):
        replace(
            PER_MINUTE,
            expectations=(gxe.ExpectColumnMeanToBeBetween(column="speed", max_value=1),),
        )


def test_a_suites_descriptions_notes_and_meta_are_kept(gxe: Any) -> None:  # noqa: ANN401
    suite = import_module("great_expectations").ExpectationSuite(
        name="ours",
        expectations=[
            gxe.ExpectColumnValuesToNotBeNull(
                column="n",
                description="Every minute counts.",
                notes=["Ask **ops**.", "They know."],
                meta={"owner": "ops"},
            )
        ],
    )
    (told,) = replace(PER_MINUTE, expectations=(*suite.expectations,)).expectations
    assert told.description == "Every minute counts."
    assert told.notes == "Ask **ops**.\n\nThey know."
    assert told.meta == {"owner": "ops"}
    short = q.not_null("n", description="Every minute counts.", meta={"owner": "ops"})
    assert (short.description, short.meta) == (told.description, told.meta)


def test_descriptions_do_not_change_the_fingerprint() -> None:
    plain = replace(PER_MINUTE, expectations=(q.not_null("n"),))
    told = replace(PER_MINUTE, expectations=(q.not_null("n", description="A minute.", notes="x"),))
    other = replace(PER_MINUTE, expectations=(q.not_null("n", mostly=0.5),))
    assert compute_fingerprint(plain) == compute_fingerprint(told)
    assert compute_fingerprint(plain) != compute_fingerprint(other)


def test_a_row_condition_written_for_spark_is_refused(gxe: Any) -> None:  # noqa: ANN401
    with pytest.warns(DeprecationWarning, match="deprecated as of GX Core"):
        given = gxe.ExpectColumnValuesToNotBeNull(
            column="n", row_condition="n > 1", condition_parser="spark"
        )
    for make in (
        lambda: replace(PER_MINUTE, expectations=(given,)),
        lambda: q.not_null("n", row_condition="n > 1", condition_parser="spark"),
    ):
        with pytest.raises(DefinitionError, match="its row_condition is written for Spark"):
            make()
