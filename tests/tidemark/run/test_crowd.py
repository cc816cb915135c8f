"""Test of concurrent runs of an asset, one of which is killed, a backfill and releases.

Every event counts once, and every commit is in the ledger.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helpers.data.runs import dies, run_all
from helpers.data.support import PER_MINUTE, READINGS, T0, ingest, minutes, reference, some_arrivals
from tidemark import expect as q
from tidemark.base.errors import ConflictError, DataError
from tidemark.base.settings import Settings
from tidemark.engine.connect import engine_address
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

# Runs, backfills and releases at the same time, some in processes that are killed.
pytestmark = pytest.mark.slow

MOST = 6
CROWD = replace(
    PER_MINUTE, name="crowd", expectations=(q.matches_log(), q.between("n", max_value=MOST))
)
STEPS = ("state", "published", "ledger")
ARRIVALS = some_arrivals(count=2 * len(STEPS), size=30)
_DYING = """
import json
import sys
_, remote, place, here = sys.argv
sys.path.append(here)
from pyspark.sql import SparkSession
from test_crowd import CROWD
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse

warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
while incremental(warehouse, CROWD, limit=1):
    pass
"""


def _runs(warehouse: Warehouse) -> None:
    while incremental(warehouse, CROWD, limit=1):
        pass


def _fills_back(warehouse: Warehouse) -> None:
    # A user would retry the backfill if other runs kept committing first.
    with suppress(ConflictError):
        backfill(warehouse, CROWD, *minutes(-3, 2))


def _releases(warehouse: Warehouse) -> None:
    for n in range(6):
        # Nothing is quarantined yet, or a run committed first.
        with suppress(DataError, ConflictError):
            first = T0 + (n - 6) * 60_000_000
            quarantine.release_windows(warehouse, CROWD, Choice(first, first + 120_000_000))


@pytest.fixture
def crowd(warehouse: Warehouse, engine: Settings) -> Iterator[list[Callable[[], None]]]:
    """Yield functions that run next to the killed run, each in its own session."""
    with ExitStack() as sessions:

        def alone(work: Callable[[Warehouse], None]) -> Callable[[], None]:
            spark = SparkSession.builder.remote(engine_address(engine)).create()
            sessions.callback(spark.stop)
            return lambda: work(Warehouse(spark, *warehouse.place))

        yield [alone(work) for work in (_runs, _fills_back, _releases)]


@pytest.mark.nightly
def test_concurrent_runs_kills_and_releases_lose_and_double_nothing(
    warehouse: Warehouse, engine: Settings, crowd: list[Callable[[], None]]
) -> None:
    died = 0
    with ThreadPoolExecutor(len(crowd)) as pool:
        for n, step in enumerate(STEPS):
            ingest(warehouse, READINGS, ARRIVALS[2 * n : 2 * n + 2], ends=False)
            beside = [pool.submit(work) for work in crowd]
            died += dies(_DYING, engine, warehouse, step, str(Path(__file__).parent))
            for work in beside:
                work.result()
    ingest(warehouse, READINGS, [])
    run_all(warehouse, CROWD)
    assert died > 0
    by_window = reference(ARRIVALS)
    rows = quarantine.read_computed(warehouse, CROWD, ()).select(
        F.unix_micros("window_start"), "sensor", "n", "events", "late_events", "final"
    )
    found = [tuple(row) for row in rows.collect()]
    assert len({row[:2] for row in found}) == len(found)
    assert {(start, key): (n, e, late, f) for start, key, n, e, late, f in found} == {
        window: (row["n"], row["events"], row["late_events"], True)
        for window, row in by_window.items()
    }
    out = warehouse.load_rows(CROWD.published_table).select(["n", "quality"]).to_pylist()
    assert {r["quality"] for r in out if r["n"] > MOST} <= {quarantine.RELEASED}
    assert check_parity(warehouse, CROWD).is_equal
    done = [
        r["commit_number"]
        for r in warehouse.load_rows(ledger.TABLE).to_pylist()
        if r["asset"] == "crowd"
    ]
    assert sorted(done) == list(range(len(done)))
