"""Tests that the ledger records the duration of each step of a run."""

import pyarrow as pa
import pytest

from helpers.data.runs import killed, run_all
from helpers.data.support import PER_MINUTE, minutes, renamed
from tidemark.base.settings import Settings
from tidemark.run.runner import backfill
from tidemark.store import ledger
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

INCREMENT = ["count", "compute", "validate", "store", "publish"]
REPLACEMENT = ["count", "store", "compute", "validate", "publish"]
INSTANTS = {"window_from", "window_to", "started_at", "watermark", *ledger.ENDED.values()}


def recorded(warehouse: Warehouse, asset: str) -> list[RunFacts]:
    """Return the runs of an asset from the ledger."""
    rows = warehouse.load_rows(ledger.TABLE).sort_by("commit_number")
    plain = {n: rows[n].cast(pa.int64()) if n in INSTANTS else rows[n] for n in rows.column_names}
    return [RunFacts(**r) for r in pa.table(plain).to_pylist() if r["asset"] == asset]


def test_the_steps_of_a_run_add_up_to_its_duration(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "in_steps")
    made = run_all(logged, asset, 3)
    made.append(backfill(logged, asset, *minutes(0, 3)))
    assert [list(facts.steps) for facts in made] == [INCREMENT, INCREMENT, REPLACEMENT]
    for facts in made:
        assert sum(facts.steps.values()) == pytest.approx(facts.seconds)
        assert facts.steps["count"] > 0 < facts.steps["compute"]
    assert recorded(logged, "in_steps") == made


@pytest.mark.slow
def test_a_run_completed_by_another_has_no_steps(logged: Warehouse, engine: Settings) -> None:
    assert killed(engine, logged, "taken_up", "incremental", "published", 4)
    asset = renamed(PER_MINUTE, "taken_up")
    run_all(logged, asset, 3)
    first, second = recorded(logged, "taken_up")
    assert first.steps == {}
    assert list(second.steps) == INCREMENT
