"""Tests of backfills during which a stream commits."""

from typing import Any, cast

import pytest
from pyspark.sql import functions as F

from helpers.data.runs import run_all
from helpers.data.support import (
    PER_MINUTE,
    minutes,
    published,
    reference,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import ConflictError
from tidemark.define.helper_columns import ADMITTED
from tidemark.define.transform import WindowedTransform
from tidemark.run import commit, rebase, runner
from tidemark.run.plan import Plan
from tidemark.run.runner import backfill, incremental, replay
from tidemark.store.asset import Asset
from tidemark.store.rows import Rows
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

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


def count_stored_events(warehouse: Warehouse, asset: WindowedTransform) -> dict[Any, int]:
    """Return how many events the state has counted, by window and key."""
    stored = State(warehouse, asset).read_partials().where(ADMITTED)
    start = F.unix_micros("window_start").alias("start")
    counts = stored.groupBy(start, "sensor").agg(F.sum("events").alias("events"))
    return {(row.start, row.sensor): row.events for row in counts.collect()}


CONCURRENT = [
    # arrivals of the first run, the backfilled minutes, arrivals of the stream during the replay
    (2, (0, 1), 1),
    (1, (2, 4), 2),
    (3, (-1, 2), 1),
    (1, (0, 3), 3),
]


@pytest.mark.parametrize(("first", "backfilled", "streamed"), mostly_nightly(CONCURRENT))
def test_windows_of_a_replay_that_were_counted_unequally_far_count_each_event_once(
    logged: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    backfilled: tuple[int, int],
    streamed: int,
) -> None:
    """A stream commits during a replay of windows, some of which a backfill brought ahead.

    A replay first brings all windows up to date, so this needs a backfill between its two steps.
    """
    asset = renamed(PER_MINUTE, f"unequal_{first}_{streamed}")
    incremental(logged, asset, limit=first)
    backfill(logged, asset, *minutes(*backfilled))
    store_partials = commit.store_partials
    interrupted = list[int]()

    def store_after_the_stream(stored_asset: Asset, plan: Plan, partials: Rows) -> None:
        if not interrupted:
            interrupted.append(streamed)
            assert incremental(logged, asset, limit=streamed) is not None
        store_partials(stored_asset, plan, partials)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "store_partials", store_after_the_stream)
        patch.setattr(runner, "incremental", lambda *_: None)
        replay(logged, asset, 0)
    assert interrupted
    assert check_parity(logged, asset).is_equal
    run_all(logged, asset, 1)
    expected = reference(some_arrivals())
    assert published(logged, asset) == expected
    counted = {window: row["n"] for window, row in expected.items()}
    assert count_stored_events(logged, asset) == counted
