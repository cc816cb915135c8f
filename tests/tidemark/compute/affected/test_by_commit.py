"""Commits that change windows that a chain has taken."""

from dataclasses import replace
from typing import Any

import pytest

from helpers.data.support import READINGS
from tidemark.compute.affected.by_commit import can_repeat_rows, find_changes
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import Cause, Increment, Promotion, Replacement


def transform(window: Window) -> WindowedTransform:
    return WindowedTransform(
        name="sums",
        description="",
        source=READINGS,
        keys=(),
        window=window,
        allowed_lateness=0,
        aggregates={"n": agg.count()},
        function=lambda rows: rows,
    )


TENS = transform(Tumbling("10 microseconds"))


def replacement(cause: Cause = Cause.CORRECTION, **given: Any) -> Replacement:  # noqa: ANN401
    options: dict[str, Any] = {"definition": "a", "complete": cause is Cause.CORRECTION, **given}
    return Replacement(cause=cause, commit_number=2, **options)


FIRST = Increment(commit_number=0, definition="a")
EARLIER: list[StateCommit] = [FIRST, Increment(commit_number=1, definition="a")]


@pytest.mark.parametrize(
    ("commit", "changes"),
    [
        (Increment(commit_number=2, definition="b"), False),
        (replacement(), True),
        (replacement(ranges=((20, 30),)), True),
        (replacement(ranges=((30, 40),)), False),
        (replacement(Cause.BACKFILL), False),
        (replacement(Cause.BACKFILL, complete=True), True),
        (replacement(Cause.BACKFILL, definition="b"), True),
        (replacement(Cause.ERASURE, ranges=((0, 10),)), False),
        (Promotion(commit_number=2, definition="a", taken={}, kept={}), True),
    ],
)
def test_a_commit_changes_windows_that_were_taken(commit: StateCommit, changes: bool) -> None:
    # The windows through [20, 30) have been taken.
    found = list(find_changes([*EARLIER, commit], 1, TENS, 30))
    assert found == ([commit] if changes else [])
    assert list(find_changes([*EARLIER, commit], 2, TENS, 30)) == []
    assert list(find_changes([*EARLIER, commit], 1, TENS, None)) == []


def test_a_backfill_after_another_answer_changes_windows() -> None:
    backfill = replacement(Cause.BACKFILL, ranges=((0, 10),))
    corrected = Replacement(cause=Cause.CORRECTION, commit_number=1, definition="a", complete=True)
    assert list(find_changes([FIRST, corrected, backfill], 1, TENS, 30)) == [backfill]
    erased = replace(backfill, cause=Cause.ERASURE)
    assert list(find_changes([FIRST, corrected, erased], 0, TENS, 30)) == [corrected, erased]
    assert can_repeat_rows([FIRST, corrected, erased], erased)
    other = Increment(commit_number=1, definition="b")
    assert list(find_changes([FIRST, other, backfill], 1, TENS, 30)) == [backfill]
    assert not can_repeat_rows([FIRST, other, backfill], backfill)
    renewed = Replacement(cause=Cause.BACKFILL, commit_number=1, definition="a")
    changed = Increment(commit_number=0, definition="b")
    assert list(find_changes([changed, renewed, backfill], 1, TENS, 30)) == []
    assert can_repeat_rows([changed, renewed, backfill], backfill)
    assert not can_repeat_rows([changed, renewed], renewed)


@pytest.mark.parametrize(
    "window", [Session("10 microseconds"), Sliding("30 microseconds", "10 microseconds")]
)
def test_windows_of_several_ends_change_if_any_may_have_been_taken(window: Window) -> None:
    commit = replacement(ranges=((20, 30),))
    assert list(find_changes([*EARLIER, commit], 1, transform(window), 21)) == [commit]
    assert list(find_changes([*EARLIER, commit], 1, transform(window), 20)) == []
