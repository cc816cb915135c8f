"""Tests of an erasure during a run that has counted the events: no table keeps them."""

from collections.abc import Callable
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
)
from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.run import commit
from tidemark.run.change import erase as erasing
from tidemark.run.change import rebuild
from tidemark.run.change.erase import erase
from tidemark.run.change.replay import replay_to_side_tables
from tidemark.run.runner import backfill, incremental
from tidemark.store.state import State
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity

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


def hers(warehouse: Warehouse) -> list[str]:
    """Return the tables that have a row of Ann's."""
    keyed = [t for t in own_tables(warehouse) if "sensor" in warehouse.schema(t).names]
    return [t for t in keyed if ANN in warehouse.take(t, columns=["sensor"])["sensor"].to_pylist()]


Moment = tuple[object, str, object]
Before = Callable[[object, str, object], None]
Run = Callable[[Warehouse, Definition], object]


@pytest.fixture
def erase_before(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Before:
    """Return a function that runs one erasure just before a given call."""
    ingest(warehouse, READINGS, ARRIVALS)
    done = False

    def before(owner: object, name: str, told: object) -> None:
        there = getattr(owner, name)

        def later(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (passed on)
            nonlocal done
            if not done and (told is None or told in given):
                done = True
                erase(warehouse, READINGS, [PER_MINUTE], f"sensor = '{ANN}'")
            return there(*given, **named)

        monkeypatch.setattr(owner, name, later)

    return before


MADE = (State, "create", None)
"""The run has counted its events, and its state has no table yet."""
STORED = (commit, "pass_fail_point", "state")
"""The run has checked for erasures for the last time, and commits."""
PUBLISHED = (commit, "pass_fail_point", "late")
"""The run has committed, and publishes."""


@pytest.mark.parametrize(
    ("way", "moment"), [(incremental, MADE), (backfill, STORED), (incremental, PUBLISHED)]
)
def test_a_first_run_recounts_after_an_erasure(
    warehouse: Warehouse, erase_before: Before, way: Run, moment: Moment
) -> None:
    erase_before(*moment)
    way(warehouse, PER_MINUTE)
    assert hers(warehouse) == []
    assert erasures.count_erasures(warehouse, READINGS) == 1
    assert published(warehouse, PER_MINUTE) == LEFT
    assert parity(warehouse, PER_MINUTE).equal


def test_a_roll_ups_first_run_follows_an_erasure_of_its_base(
    warehouse: Warehouse, erase_before: Before
) -> None:
    sixes = rollup(of=PER_MINUTE, window=Tumbling("6 minutes"), name="sixes")
    incremental(warehouse, PER_MINUTE)
    erase_before(Warehouse, "create", "sixes")
    incremental(warehouse, sixes)
    assert hers(warehouse) == []
    assert parity(warehouse, sixes).equal


@pytest.mark.parametrize(
    ("moment", "removed"), [(MADE, True), (STORED, True), (PUBLISHED, True), (PUBLISHED, False)]
)
def test_side_tables_created_during_an_erasure_exclude_erased_events(
    warehouse: Warehouse,
    erase_before: Before,
    monkeypatch: pytest.MonkeyPatch,
    moment: Moment,
    *,
    removed: bool,
) -> None:
    incremental(warehouse, PER_MINUTE)
    erase_before(*moment)
    if not removed:
        # As if they were created just after the erasure listed the side tables.
        monkeypatch.setattr(erasing, "_list_side_tables", lambda *_: [])
    if moment is MADE:
        replay_to_side_tables(warehouse, PER_MINUTE, 0, "tried")
        assert warehouse.exists("per_minute__tried")
    else:
        rebuild.rebuild(warehouse, WIDER)
        rebuild.promote(warehouse, WIDER)
        assert parity(warehouse, WIDER).equal
    assert hers(warehouse) == []


def test_side_tables_with_erased_events_must_be_rebuilt(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    rebuild.rebuild(warehouse, WIDER)
    with monkeypatch.context() as later:
        # As if they had been created just after the erasure listed them.
        later.setattr(erasing, "_list_side_tables", lambda *_: [])
        erase(warehouse, READINGS, [PER_MINUTE], f"sensor = '{ANN}'")
    assert hers(warehouse)
    with pytest.raises(DataError, match="nothing to promote"):
        rebuild.promote(warehouse, WIDER)
    rebuild.rebuild(warehouse, WIDER)
    assert hers(warehouse) == []
    rebuild.promote(warehouse, WIDER)
    assert parity(warehouse, WIDER).equal
