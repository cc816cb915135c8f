"""Tests of an erasure in parallel with other runs of its source: no table keeps the events."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.run import commit
from tidemark.run.change import rebuild
from tidemark.run.change.replay import replay_to_side_tables
from tidemark.run.erase import deletion, recovery
from tidemark.run.erase.erase import erase
from tidemark.run.runner import backfill, incremental
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity
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
WAITS = f"wait for the runs of {READINGS.name}"


def hers(warehouse: Warehouse) -> list[str]:
    """Return the tables that have a row of Ann's."""
    keyed = [t for t in own_tables(warehouse) if "sensor" in warehouse.schema(t).names]
    return [t for t in keyed if ANN in warehouse.take(t, columns=["sensor"])["sensor"].to_pylist()]


@dataclass
class Erasing:
    """An erasure of Ann's events in a thread."""

    warehouse: Warehouse
    assets: tuple[Definition, ...] = (PER_MINUTE, SIXES)
    waits: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the erasure, and return when it waits for a run."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.erase)
            self.thread.start()
            assert self.waits.wait(60), "it does not wait for the run"

    def erase(self) -> None:
        def watch(progress: str) -> None:
            if progress == WAITS:
                self.waits.set()

        erase(self.warehouse, READINGS, self.assets, f"sensor = '{ANN}'", on_progress=watch)

    def join(self) -> None:
        assert self.thread is not None, "it has not begun"
        self.thread.join()


@pytest.fixture
def erasing(warehouse: Warehouse) -> Erasing:
    ingest(warehouse, READINGS, ARRIVALS)
    return Erasing(warehouse)


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
CREATES: Moment = (State, "create", None)
"""The run has counted its events, and its state has no table yet."""
STORES: Moment = (commit, "pass_fail_point", "state")
PUBLISHES: Moment = (commit, "pass_fail_point", "late")


@pytest.mark.parametrize(
    ("way", "moment"),
    mostly_nightly([(incremental, CREATES), (backfill, STORES), (incremental, PUBLISHES)]),
)
def test_an_erasure_waits_for_a_first_run(
    warehouse: Warehouse,
    erasing: Erasing,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Warehouse, Definition], object],
    moment: Moment,
) -> None:
    before(monkeypatch, *moment, erasing.begin)
    way(warehouse, PER_MINUTE)
    erasing.join()
    assert hers(warehouse) == []
    assert published(warehouse, PER_MINUTE) == LEFT
    assert parity(warehouse, PER_MINUTE).equal


@pytest.mark.nightly
def test_an_erasure_waits_for_a_roll_up(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    incremental(warehouse, PER_MINUTE)
    before(monkeypatch, Warehouse, "create", "sixes", erasing.begin)
    incremental(warehouse, SIXES)
    erasing.join()
    assert hers(warehouse) == []
    assert parity(warehouse, SIXES).equal


@pytest.mark.nightly
@pytest.mark.parametrize("moment", mostly_nightly([(PUBLISHES,), (CREATES,), (STORES,)]))
def test_an_erasure_waits_for_a_replay_and_a_rebuild_with_its_promotion(
    warehouse: Warehouse, erasing: Erasing, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    incremental(warehouse, PER_MINUTE)
    if moment is CREATES:
        before(monkeypatch, *moment, erasing.begin)
        replay_to_side_tables(warehouse, PER_MINUTE, 0, "tried")
    elif moment is STORES:
        before(monkeypatch, *moment, erasing.begin)
        rebuild.rebuild(warehouse, WIDER)
    else:
        rebuild.rebuild(warehouse, WIDER)
        erasing.assets = (WIDER,)
        before(monkeypatch, rebuild.swap, "finish", None, erasing.begin)
        rebuild.promote(warehouse, WIDER)
    erasing.join()
    assert hers(warehouse) == []
    assert not any(table.side for table in own_tables(warehouse))
    if moment is PUBLISHES:
        assert parity(warehouse, WIDER).equal


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
        continuous.start(warehouse, streamed)
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
        assert not any(warehouse.exists(table) for table in (streamed.state_table, "fresh_state"))

    # The events are still in the log.
    before(monkeypatch, deletion, "pass_fail_point", "letters", begin)
    erase(warehouse, READINGS, [PER_MINUTE], f"sensor = '{ANN}'")
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 60
    while State(warehouse, streamed).last().after.at.arrival < len(ARRIVALS):
        assert time.monotonic() < deadline, "the stream does not continue"
        time.sleep(0.3)
    continuous.stop(warehouse, streamed)
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
    rebuild.rebuild(warehouse, changed)
    with monkeypatch.context() as dying:
        for module in (deletion, recovery):
            before(dying, module, "pass_fail_point", point, die)
        with pytest.raises(KeyboardInterrupt):
            erasing.erase()
    incremental(warehouse, PER_MINUTE)
    rebuild.rebuild(warehouse, changed)
    rebuild.promote(warehouse, changed)
    erasing.assets = (changed,)
    erasing.erase()
    assert hers(warehouse) == []
    assert erasures.find_unfinished(warehouse, READINGS) == []
    assert State(warehouse, changed).forgotten() >= State(warehouse, changed).last().promoted
    assert parity(warehouse, changed).equal
