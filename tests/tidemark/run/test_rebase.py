"""Tests that a run gives up after a fixed total number of commit conflicts."""

from typing import Any, cast

import pytest

from helpers.data.support import PER_MINUTE
from tidemark.base.errors import ConflictError
from tidemark.run import commit, rebase
from tidemark.store.asset import Asset

GAVE_UP = r"Gave up after 20 commit conflicts with other runs of 'per_minute'"


@pytest.mark.parametrize("before", [0, 1, 12, 19])
def test_conflicts_before_and_after_a_rebase_count_together(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    attempts = 0

    def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConflictError("Another run was faster.")

    monkeypatch.setattr(commit, "store_partials", refuse)
    monkeypatch.setattr(rebase, "_rebase_plan", lambda _, todo, partials, __: (todo, partials))
    conflicts, unused = rebase.Conflicts(PER_MINUTE.name), cast("Any", None)
    for _ in range(before):
        conflicts.count_conflict()
    with pytest.raises(ConflictError, match=GAVE_UP):
        rebase.store_plan(cast(Asset, unused), unused, unused, unused, conflicts)
    assert attempts == rebase.MAX_CONFLICTS - before
    # The run does not start again.
    with pytest.raises(ConflictError, match=GAVE_UP):
        conflicts.count_conflict()
