"""Tests of an erasure during other runs of its source: no table keeps the events.

The runs share only the warehouse with the erasure, as runs on another machine do. Each test pauses
a run, erases, and lets the run continue.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from helpers.data.redefined import WIDER
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    ingest,
    published,
    reference,
    renamed,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Session, Tumbling
from tidemark.expect import between
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.run import commit
from tidemark.run.change import rebuild
from tidemark.run.change.replay import replay_to_side_tables
from tidemark.run.erase import deletion, recovery
from tidemark.run.erase.erase import erase_events
from tidemark.run.runner import backfill, correct, incremental, replay
from tidemark.store.committers.committer import Committer
from tidemark.store.epoch import ErasedMeanwhileError
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.streams import continuous

# Many runs, rebuilds and erasures for each test.
pytestmark = pytest.mark.slow

ANN = "ann"
ARRIVALS = [
    [Event(T0 + n * 10_000_000, key, n) for n, key in enumerate(("b", ANN, ANN, "b"))],
    [Event(T0 + n * MINUTE, key, n) for n, key in ((5, "b"), (6, ANN), (9, "b"))],
    # Too late.
    [Event(T0 + 1, ANN, 1), Event(T0 + 2, "b", 2), Event(T0 + 10 * MINUTE, "b", 3)],
]
HERS = {(a, p) for a, some in enumerate(ARRIVALS) for p, e in enumerate(some) if e.key == ANN}
LEFT = reference(ARRIVALS, left_out=HERS)
SIXES = rollup(of=PER_MINUTE, window=Tumbling("6 minutes"), name="sixes")
VISITS = replace(PER_MINUTE, name="visits", window=Session("1 minute"))
STRICT = replace(PER_MINUTE, name="strict", expectations=(between("n", 5, 9),))


def hers(warehouse: Warehouse) -> list[str]:
    """Return the tables that have a row of Ann's, or a text about one."""
    found = list[str]()
    for table in own_tables(warehouse):
        rows = warehouse.load_rows(table)
        texts = [n for n in rows.column_names if n in ("sensor", "failures", "differences")]
        if any(ANN in str(rows[name].to_pylist()) for name in texts):
            found.append(table)
    return found


@dataclass
class Erasing:
    """An erasure of Ann's events that begins during a run, and ends before the run continues."""

    warehouse: Warehouse
    assets: tuple[Definition, ...]
    done: bool = False

    def begin(self) -> None:
        """Erase the events in another thread, once."""
        if not self.done:
            self.done = True
            thread = threading.Thread(target=self.erase)
            thread.start()
            thread.join()

    def erase(self) -> None:
        # Another machine has another object, too.
        warehouse = Warehouse(self.warehouse.spark, *self.warehouse.place)
        erase_events(warehouse, READINGS, self.assets, f"sensor = '{ANN}'")


@pytest.fixture
def erasing(warehouse: Warehouse) -> Erasing:
    ingest(warehouse, READINGS, ARRIVALS)
    return Erasing(warehouse, (PER_MINUTE, SIXES, VISITS, STRICT))


def before(
    patch: pytest.MonkeyPatch, owner: object, name: str, given: object, act: Callable[[], None]
) -> None:
    """Call `act` just before a function is called with an argument."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (passed on)
        if given is None or given in args:
            act()
        return original(*args, **kwargs)

    patch.setattr(owner, name, call)


Moment = tuple[object, str, object]
CREATES: Moment = (State, "ensure_table", None)
"""The run has counted its events, and its state has no table yet."""
STORES: Moment = (commit, "pass_fail_point", "state")
QUARANTINES, REPORTS, LATE, PUBLISHES, ENDS = (
    (commit, "pass_fail_point", point)
    for point in ("quarantine", "results", "late", "published", "ledger")
)
SWAP_STORES: Moment = (rebuild.swap, "pass_fail_point", "state")
SWAP_PUBLISHES: Moment = (rebuild.swap, "pass_fail_point", "published")

Way = Callable[[Warehouse, Definition], object]
"""A run, which is paused at a moment."""


def replay_all(warehouse: Warehouse, asset: Definition) -> None:
    replay(warehouse, asset, 0)


def replay_aside(warehouse: Warehouse, asset: Definition) -> None:
    replay_to_side_tables(warehouse, asset, 0, "tried")


def rebuild_wider(warehouse: Warehouse, asset: Definition) -> None:
    rebuild.rebuild_tables(warehouse, replace(asset, expectations=WIDER.expectations))


@pytest.mark.parametrize(
    ("way", "asset", "moment"),
    mostly_nightly(
        [
            (incremental, PER_MINUTE, CREATES),
            (backfill, PER_MINUTE, STORES),
            *((incremental, PER_MINUTE, m) for m in (STORES, REPORTS, LATE, PUBLISHES, ENDS)),
            *((incremental, VISITS, m) for m in (CREATES, STORES, LATE, PUBLISHES)),
            *((incremental, STRICT, m) for m in (STORES, QUARANTINES, REPORTS, PUBLISHES)),
            *((backfill, PER_MINUTE, m) for m in (CREATES, LATE, PUBLISHES)),
            *((backfill, VISITS, m) for m in (CREATES, STORES, LATE, PUBLISHES)),
        ],
        usual=2,
    ),
)
def test_an_erasure_during_a_first_run(
    warehouse: Warehouse,
    erasing: Erasing,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
    asset: Definition,
    moment: Moment,
) -> None:
    before(monkeypatch, *moment, erasing.begin)
    way(warehouse, asset)
    assert erasing.done
    assert hers(warehouse) == []
    assert check_parity(warehouse, asset).is_equal
    if asset is PER_MINUTE:
        assert published(warehouse, PER_MINUTE) == LEFT


@pytest.mark.parametrize(
    ("way", "asset", "moment"),
    mostly_nightly(
        [
            (rebuild_wider, PER_MINUTE, CREATES),
            *((backfill, PER_MINUTE, m) for m in (STORES, LATE, PUBLISHES)),
            *((backfill, VISITS, m) for m in (STORES, LATE, PUBLISHES)),
            *((replay_all, PER_MINUTE, m) for m in (STORES, LATE, PUBLISHES)),
            *((replay_all, VISITS, m) for m in (STORES, PUBLISHES)),
            *((correct, PER_MINUTE, m) for m in (STORES, LATE, PUBLISHES)),
            *((correct, VISITS, m) for m in (STORES, PUBLISHES)),
            *((replay_aside, PER_MINUTE, m) for m in (CREATES, STORES, LATE, PUBLISHES, ENDS)),
            *((rebuild_wider, PER_MINUTE, m) for m in (STORES, LATE, PUBLISHES)),
            *((backfill, STRICT, m) for m in (STORES, QUARANTINES, REPORTS, PUBLISHES)),
        ]
    ),
)
def test_an_erasure_during_a_later_run(
    warehouse: Warehouse,
    erasing: Erasing,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
    asset: Definition,
    moment: Moment,
) -> None:
    incremental(warehouse, asset)
    before(monkeypatch, *moment, erasing.begin)
    way(warehouse, asset)
    assert erasing.done
    assert hers(warehouse) == []
    # A correction may add too-late events of others.
    assert check_parity(warehouse, asset).kinds.keys() <= {"late_loss"}


@pytest.mark.nightly
@pytest.mark.parametrize("moment", [(Warehouse, "ensure_table", "sixes"), PUBLISHES])
def test_an_erasure_during_a_roll_up(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    incremental(warehouse, PER_MINUTE)
    before(monkeypatch, *moment, erasing.begin)
    incremental(warehouse, SIXES)
    assert erasing.done
    assert hers(warehouse) == []
    assert check_parity(warehouse, SIXES).is_equal


@pytest.mark.nightly
def test_an_erasure_before_a_promotion_leaves_nothing_to_promote(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    incremental(warehouse, PER_MINUTE)
    rebuild.rebuild_tables(warehouse, WIDER)
    before(monkeypatch, *SWAP_STORES, erasing.begin)
    with pytest.raises(DataError, match="nothing to promote"):
        rebuild.promote_tables(warehouse, WIDER)
    assert erasing.done
    assert hers(warehouse) == []
    assert check_parity(warehouse, PER_MINUTE).is_equal


@pytest.mark.nightly
def test_an_erasure_finishes_a_promotion(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    incremental(warehouse, PER_MINUTE)
    rebuild.rebuild_tables(warehouse, WIDER)
    erasing.assets = (WIDER,)
    before(monkeypatch, *SWAP_PUBLISHES, erasing.begin)
    rebuild.promote_tables(warehouse, WIDER)
    assert erasing.done
    assert hers(warehouse) == []
    assert check_parity(warehouse, WIDER).is_equal


@pytest.mark.nightly
def test_an_erasure_during_a_release(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    incremental(warehouse, STRICT)
    assert quarantine.count_windows(warehouse, STRICT).rows
    before(monkeypatch, Committer, "merge_if", None, erasing.begin)
    with pytest.raises(ErasedMeanwhileError, match="erased"):
        quarantine.release_windows(warehouse, STRICT, Choice())
    assert erasing.done
    assert hers(warehouse) == []
    assert check_parity(warehouse, STRICT).is_equal


def test_runs_that_begin_during_an_erasure_wait_for_it(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed, fresh = renamed(PER_MINUTE, "streamed"), renamed(PER_MINUTE, "fresh")
    incremental(warehouse, PER_MINUTE)
    ended = list[str]()

    def run(name: str, act: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=lambda: (act(), ended.append(name)))
        thread.start()
        return thread

    threads = list[threading.Thread]()

    def begin() -> None:
        continuous.start_query(warehouse, streamed)
        threads.extend(
            [
                run("fresh", lambda: incremental(warehouse, fresh)),
                run("backfill", lambda: backfill(warehouse, PER_MINUTE)),
                run("replay", lambda: replay_to_side_tables(warehouse, PER_MINUTE, 0, "tried")),
            ]
        )
        # Enough for each of them, if it did not wait.
        time.sleep(10)
        assert ended == []
        assert not any(
            warehouse.has_table(table) for table in (streamed.state_table, "fresh_state")
        )

    # The events are still in the log.
    before(monkeypatch, deletion, "pass_fail_point", "letters", begin)
    erase_events(warehouse, READINGS, [PER_MINUTE], f"sensor = '{ANN}'")
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 60
    while State(warehouse, streamed).read_last_commit().after.at.arrival < len(ARRIVALS):
        assert time.monotonic() < deadline, "the stream does not continue"
        time.sleep(0.3)
    continuous.stop_query(warehouse, streamed)
    assert len(ended) == len(threads)
    assert hers(warehouse) == []
    for asset in (PER_MINUTE, fresh):
        assert published(warehouse, asset) == LEFT


@pytest.mark.parametrize(
    "point", mostly_nightly(["copies", "counted", "erasure", "letters", "erased"])
)
def test_runs_continue_after_an_erasure_was_killed_and_the_next_completes_it(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    incremental(warehouse, PER_MINUTE)
    # The next promotion keeps these windows as a backup.
    changed = replace(WIDER, expectations=())
    rebuild.rebuild_tables(warehouse, changed)
    with monkeypatch.context() as dying:
        for module in (deletion, recovery):
            before(dying, module, "pass_fail_point", point, die)
        with pytest.raises(KeyboardInterrupt):
            erasing.erase()
    incremental(warehouse, PER_MINUTE)
    rebuild.rebuild_tables(warehouse, changed)
    rebuild.promote_tables(warehouse, changed)
    erasing.assets = (changed,)
    erasing.erase()
    assert hers(warehouse) == []
    assert erasures.find_unfinished(warehouse, READINGS) == []
    assert (
        State(warehouse, changed).newest_forgotten_backup()
        >= State(warehouse, changed).read_last_commit().promoted
    )
    assert check_parity(warehouse, changed).is_equal
