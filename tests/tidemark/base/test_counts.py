"""Tests of counts in messages, which use the singular for one."""

import pytest

from tidemark.base.counts import format_count


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1204, "1,204 rows")]
)
def test_a_count_agrees_with_its_noun(count: int, text: str) -> None:
    assert format_count(count, "row") == text
