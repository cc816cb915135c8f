"""Commits that change windows that a chain has taken."""

from typing import Any

import pytest

from helpers.data.support import READINGS
from tidemark.compute.affected.by_commit import find_change
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
    options: dict[str, Any] = {"definition": "a", **given}
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
    found = find_change([*EARLIER, commit], 1, TENS, 30)
    assert found is (commit if changes else None)
    assert find_change([*EARLIER, commit], 2, TENS, 30) is None
    assert find_change([*EARLIER, commit], 1, TENS, None) is None


def test_a_backfill_after_another_answer_changes_windows() -> None:
    backfill = replacement(Cause.BACKFILL, ranges=((0, 10),))
    corrected = Replacement(cause=Cause.CORRECTION, commit_number=1, definition="a", complete=True)
    assert find_change([FIRST, corrected, backfill], 1, TENS, 30) is backfill
    other = Increment(commit_number=1, definition="b")
    assert find_change([FIRST, other, backfill], 1, TENS, 30) is backfill
    renewed = Replacement(cause=Cause.BACKFILL, commit_number=1, definition="a")
    changed = Increment(commit_number=0, definition="b")
    assert find_change([changed, renewed, backfill], 1, TENS, 30) is None


@pytest.mark.parametrize(
    "window", [Session("10 microseconds"), Sliding("30 microseconds", "10 microseconds")]
)
def test_windows_of_several_ends_change_if_any_may_have_been_taken(window: Window) -> None:
    commit = replacement(ranges=((20, 30),))
    assert find_change([*EARLIER, commit], 1, transform(window), 21) is commit
    assert find_change([*EARLIER, commit], 1, transform(window), 20) is None
