"""Tests of recomputing the sessions of a range, which reads only events that can touch it."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest, renamed
from helpers.suite.nightly import mostly_nightly
from tidemark.compute.lifecycle import fragments
from tidemark.define import aggregates as agg
from tidemark.define.helper_columns import MARKER
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.windows import Session
from tidemark.expect import between, matches_log
from tidemark.run import commit
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.commits.kinds import SessionReplacement
from tidemark.store.event_log.log import Log
from tidemark.store.lineage import StaleError
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

# Many backfills of parts of a range, each compared with a computation of the whole.
pytestmark = pytest.mark.slow

SECOND = 1_000_000
GAP = 20 * SECOND
ARRIVALS = 8
SOME = 4

VISITS = replace(
    PER_MINUTE,
    window=Session("20 seconds"),
    # The mean depends on the order of addition.
    aggregates={"n": agg.count(), "most": agg.max("value")},
    expectations=(matches_log(), between("most", 0, 0.97)),
)
EARLY = replace(VISITS, trigger=Trigger(early=EachArrival()))
BOUNDS = [T0 - 8 * MINUTE + 7 * SECOND + n * 303 * SECOND for n in range(5)]
PIECES = list(pairwise(BOUNDS))
"""Adjacent ranges that contain all events."""


def arrivals() -> list[list[Event]]:
    """Return arrivals a minute apart, with events up to seven minutes old.

    Many events are too late and would join sessions.
    """
    chance = random.Random(11)

    def event(now: int) -> Event:
        age = chance.choice([20, 60, 60, 240, 420]) * SECOND
        return Event(now - int(chance.random() * age), chance.choice("abcdef"), chance.random())

    return [[event(T0 + n * MINUTE) for _ in range(48)] for n in range(ARRIVALS)]


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Limit fragments to one gap, so that small ranges are enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragments, "GAPS", 1)
        yield


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    ingest(shared, READINGS, arrivals(), ends=False)
    return shared


def told(warehouse: Warehouse, asset: WindowedTransform) -> list[Counter[str]]:
    """Return the published and quarantined rows of an asset, and its late loss.

    The last valid rows of quarantined sessions are left out, because only a stream has them.
    """
    of_window = list(asset.by_window)
    withheld = warehouse.load_rows(asset.quarantine_table)
    published = warehouse.load_rows(asset.published_table).join(
        withheld.select(of_window), of_window, join_type="left anti"
    )
    return [
        _counted(rows) for rows in (published, withheld, warehouse.load_rows(asset.late_loss_table))
    ]


def _counted(rows: pa.Table) -> Counter[str]:
    """Count rows, without their commit numbers."""
    named = [n for n in rows.column_names if n not in ("commit_number", "as_of", "quarantine_run")]
    return Counter(map(str, rows.select(named).to_pylist()))


def counted(warehouse: Warehouse, asset: WindowedTransform) -> Counter[str]:
    return _counted(State(warehouse, asset).load_partials().drop_columns(MARKER))


def some(warehouse: Warehouse, asset: WindowedTransform) -> WindowedTransform:
    for _ in range(SOME):
        incremental(warehouse, asset, limit=1)
    return asset


@pytest.mark.nightly
@pytest.mark.parametrize("kind", mostly_nightly([EARLY, VISITS]), ids=["early", "plain"])
def test_backfills_of_pieces_equal_a_backfill_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, logged: Warehouse, kind: WindowedTransform
) -> None:
    name = "plain" if kind is VISITS else "early"
    whole, asset = renamed(kind, f"{name}_whole"), some(logged, renamed(kind, f"{name}_pieces"))
    incremental(logged, asset)
    read: list[tuple[int | None, int | None]] = []
    reading = Log.read_events

    def noted(
        self: Log, after: int, through: int, start: int | None = None, end: int | None = None
    ) -> DataFrame:
        if start is not None:
            read.append((start, end))
        return reading(self, after, through, start, end)

    def of(late_events: str) -> None:
        # Not in order, because each range would correct errors at the bounds of the previous one.
        for start, end in [*PIECES[::2], *PIECES[1::2]]:
            read.clear()
            facts = backfill(logged, asset, start, end, late_events=late_events)
            assert facts.window_from is not None
            assert facts.window_to is not None
            assert facts.window_from <= start < end <= facts.window_to
            assert facts.window_to - facts.window_from < end - start + 2 * GAP
            assert {*read} == {(facts.window_from, facts.window_to)}

    monkeypatch.setattr(Log, "read_events", noted)
    answers: dict[str, list[Counter[str]]] = {}
    for late_events in ("exclude", "include", "exclude"):
        backfill(logged, whole, late_events=late_events)
        of(late_events)
        answers[late_events] = told(logged, whole)
        assert told(logged, asset) == answers[late_events]
        assert counted(logged, asset) == counted(logged, whole)
        assert not check_parity(logged, asset).kinds.get("extra")
    assert answers["exclude"] != answers["include"]
    assert all(answers["exclude"])


# Many runs.
@pytest.mark.slow
def test_runs_before_and_after_a_range_backfill_reach_parity(warehouse: Warehouse) -> None:
    made = arrivals()
    ingest(warehouse, READINGS, made[:5], ends=False)
    asset, other = some(warehouse, renamed(VISITS, "between")), renamed(VISITS, "straight")
    facts = backfill(warehouse, asset, *PIECES[1])
    assert facts.commit_number == SOME + 1
    assert facts.through_arrival == 4
    assert State(warehouse, asset).read_last_commit().open_from is not None
    ingest(warehouse, READINGS, made[5:])
    for _ in made[5:]:
        incremental(warehouse, asset, limit=1)
        incremental(warehouse, other)
    incremental(warehouse, asset)
    incremental(warehouse, other)
    assert told(warehouse, asset)[:2] == told(warehouse, other)[:2]
    assert check_parity(warehouse, asset).is_equal


@pytest.mark.nightly
def test_a_correction_reads_only_a_range_of_the_log(
    monkeypatch: pytest.MonkeyPatch, logged: Warehouse
) -> None:
    # One session lacks an event.
    asset, filled = renamed(VISITS, "corrected"), renamed(VISITS, "filled")
    incremental(logged, asset)
    backfill(logged, filled, late_events="include")
    counting = Log.read_events
    read: list[tuple[int | None, int | None]] = []

    def noted(
        self: Log, after: int, through: int, start: int | None = None, end: int | None = None
    ) -> DataFrame:
        read.append((start, end))
        return counting(self, after, through, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "read_events", noted)
        done = correct(logged, asset)
    assert done is not None
    assert done.changes
    assert isinstance(State(logged, asset).read_last_commit(), SessionReplacement)
    assert read[0] != (None, None)
    assert told(logged, asset)[:2] == told(logged, filled)[:2]
    assert not logged.load_rows(asset.late_loss_table).num_rows
    assert correct(logged, asset) is None


KILLED = (PIECES[1][0], PIECES[2][1])


@pytest.fixture(scope="module")
def unkilled(logged: Warehouse) -> WindowedTransform:
    """Return an asset whose backfill of `KILLED` was not interrupted."""
    asset = renamed(VISITS, "unkilled")
    incremental(logged, asset)
    backfill(logged, asset, *KILLED, late_events="include")
    return asset


# Once for each fail point.
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("step", mostly_nightly(["published", "ledger", "quarantine"]))
def test_a_killed_range_backfill_is_published_by_the_next_run(
    monkeypatch: pytest.MonkeyPatch, logged: Warehouse, unkilled: WindowedTransform, step: str
) -> None:
    asset = renamed(VISITS, f"killed_{step}")
    incremental(logged, asset)

    class Killed(BaseException):
        pass

    def reach(at: str) -> None:
        if at == step:
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(commit, "pass_fail_point", reach)
        with pytest.raises(Killed):
            backfill(logged, asset, *KILLED, late_events="include")
    assert incremental(Warehouse(logged.spark, *logged.place), asset) is None
    assert told(logged, asset) == told(logged, unkilled)
    assert (
        State(logged, asset).read_last_commit().commit_number
        == State(logged, unkilled).read_last_commit().commit_number
    )


@pytest.mark.nightly
def test_a_range_backfill_without_reusable_sessions_computes_all(logged: Warehouse) -> None:
    new = renamed(VISITS, "new")
    assert backfill(logged, new, *PIECES[1]).window_from is None
    longer = replace(new, allowed_lateness=10 * MINUTE)
    with pytest.raises(StaleError):
        backfill(logged, longer, *PIECES[1])
    kept = replace(renamed(VISITS, "kept"), accumulation="accumulating")
    incremental(logged, kept)
    assert backfill(logged, kept, *PIECES[1]).window_from is None
