"""A short stress test of concurrent runs (`make stress` runs hundreds), and its check, which fails
if a ledger row is missing or a recount is wrong."""

import pytest

from helpers.data.planted import lose_recount
from helpers.data.runs import run_all
from helpers.data.support import ingest
from stress import SOURCE, arrivals, asset, explained, faults, stress
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.snapshot.check_results import find_integrity_fault
from tidemark_streaming.snapshot.snapshot import Snapshot

# Runs three streams and a process of increments twelve times.
pytestmark = pytest.mark.slow

ARRIVALS = 4


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    """Return a warehouse whose event log has some arrivals and the end."""
    ingest(shared, SOURCE, arrivals(ARRIVALS))
    return shared


@pytest.mark.nightly
def test_concurrent_runs_lose_nothing(engine: Settings) -> None:
    said: list[str] = []
    done, wrong = stress(engine, runs=12, busy=0, tell=said.append)
    assert wrong == []
    assert done == 12
    assert said[-1] == "12 of 12 runs"


def test_a_recount_that_is_wrong_once_quarantines_nothing(
    logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_recount(monkeypatch, commit_number=2, times=1)
    run_all(logged, asset("confirmed"), limit=1)
    assert faults(logged, [asset("confirmed")], explained(ARRIVALS)) == []


@pytest.mark.nightly
def test_a_recount_that_stays_wrong_is_an_integrity_fault(
    engine: Settings, logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_fault = asset("recounted")
    lose_recount(monkeypatch, commit_number=ARRIVALS, times=2)
    run_all(logged, at_fault, limit=1)
    found = faults(logged, [at_fault], explained(ARRIVALS))
    assert any(
        s.startswith(f"recounted: matches_log() failed in commit {ARRIVALS}: ") for s in found
    )
    assert any("is withheld by ['matches_log()']" in s for s in found)
    # Every row is correct, so parity finds no difference.
    assert not any("parity" in s for s in found)
    snapshot = Snapshot(engine.model_copy(update={"database": logged.database}))
    stands = find_integrity_fault(snapshot, at_fault)
    assert stands is not None
    assert stands.expectations == ["matches_log()"]
    assert stands.windows == len([s for s in found if "which its data do not explain" in s])


@pytest.mark.nightly
def test_a_missing_ledger_row_is_found(logged: Warehouse) -> None:
    crossed = asset("crossed")
    assert incremental(logged, crossed, limit=1) is not None
    # Another commit takes the number of the second run.
    nothing = logged.load_rows(ledger.TABLE).slice(0, 0)
    assert logged.append_rows(nothing, ledger.TABLE, Asset(logged, crossed).commit_app, 1) == 0
    run_all(logged, crossed, limit=1)
    assert faults(logged, [crossed], explained(ARRIVALS)) == [
        f"crossed: the ledger has {ARRIVALS} rows for {ARRIVALS + 1} commits, and lacks [1]"
    ]
