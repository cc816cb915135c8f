"""Which withheld windows the data explain: by their own values, and never where Tidemark is at
fault."""

from dataclasses import replace
from typing import Any

import pytest

from support import PER_MINUTE
from tidemark import quality as q
from tidemark.define.expectations.expectation import Expectation
from tidemark.verify.explanation import find_unexplained

MOST = q.between("most", most=5)
NAMED = q.not_null("sensor")
KNOWN = q.one_of("sensor", ["a", "b"])
MOVES = q.column_greater("most", "least")
COMPLETE, UNIQUE = q.matches_log(), q.unique_key()
VOLUME = q.volume_within(0.5, of="yesterday")
WARNED = q.between("least", 0, level="warning")
GATED = replace(
    PER_MINUTE, expectations=(MOST, NAMED, KNOWN, MOVES, COMPLETE, UNIQUE, VOLUME, WARNED)
)


def row(*failed: Expectation, **values: object) -> dict[str, Any]:
    """A withheld row."""
    told = [{"expectation": e.name, "level": e.level} for e in failed]
    return {"sensor": "a", "least": 1.0, "most": 3.0, "failed": told, **values}


@pytest.mark.parametrize(
    "withheld",
    [
        row(MOST, most=5.5),
        row(NAMED, sensor=None),
        row(KNOWN, sensor="c"),
        row(MOVES, least=3.0),
        row(MOST, MOVES, least=7.0, most=7.0),
        row(VOLUME),
        # What is only warned of withholds nothing.
        row(MOST, WARNED, most=9.0),
    ],
)
def test_a_window_whose_values_fail_is_explained(withheld: dict[str, Any]) -> None:
    assert find_unexplained(GATED, [withheld]) == []


@pytest.mark.parametrize(
    ("withheld", "by"),
    [
        (row(COMPLETE), COMPLETE),
        (row(UNIQUE), UNIQUE),
        # Also beside a fault that the data do have.
        (row(MOST, COMPLETE, most=9.0), COMPLETE),
        (row(MOST), MOST),
        (row(MOST, most=5), MOST),
        (row(MOST, most=None), MOST),
        (row(NAMED), NAMED),
        (row(KNOWN), KNOWN),
        (row(MOVES), MOVES),
        (row(MOST, MOVES, most=9.0), MOVES),
    ],
)
def test_a_window_is_not_explained_where_its_values_do_not_fail_or_tidemark_is_at_fault(
    withheld: dict[str, Any], by: Expectation
) -> None:
    assert find_unexplained(GATED, [row(MOST, most=9.0), withheld]) == [(withheld, by.name)]
