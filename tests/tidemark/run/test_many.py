"""Tests that many rows, which go through files, give the same results as few rows in memory."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    ingest,
    published,
    reference,
    some_arrivals,
)
from tidemark import expect as q
from tidemark.base import thresholds
from tidemark.define.helper_columns import MARKER
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

ARRIVALS = some_arrivals()
PLAIN = replace(PER_MINUTE, name="plain")
JUDGED = replace(PER_MINUTE, name="judged", expectations=(q.matches_log(), q.between("n", 0, 1000)))
SLIDING = replace(PER_MINUTE, name="sliding", window=Sliding("3 minutes", "1 minute"))
SESSIONS = replace(PER_MINUTE, name="visits", window=Session("20 seconds"))


@pytest.fixture(params=[0])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat any number of events as many, so that no result is read into memory at once."""
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", -1)
    monkeypatch.setattr(thresholds, "INLINE_ROWS", -1)
    monkeypatch.setattr(thresholds, "ADAPTIVE_PARTIALS", request.param)


def _files(warehouse: Warehouse, table: str) -> Sequence[str]:
    found = (
        warehouse.read_with_engine(table)
        .select(F.input_file_name().alias("f"))
        .distinct()
        .collect()
    )
    return [row["f"] for row in found]


# A run for each arrival, in the engine.
@pytest.mark.slow
@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("many", "asset"),
    # The number of partials up to which they are merged in one piece. Each case makes ten runs.
    [
        (0, PLAIN),
        pytest.param(50_000, SESSIONS, marks=pytest.mark.nightly),
        pytest.param(50_000, JUDGED, marks=pytest.mark.nightly),
        pytest.param(0, SLIDING, marks=pytest.mark.nightly),
    ],
    ids=lambda given: getattr(given, "name", f"{given}"),
    indirect=["many"],
)
def test_runs_of_many_events_reach_parity(warehouse: Warehouse, asset: WindowedTransform) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    while incremental(warehouse, asset, limit=2):
        pass
    assert check_parity(warehouse, asset).unexplained_count == 0
    if asset.window == PER_MINUTE.window:
        assert published(warehouse, asset) == reference(ARRIVALS)
    before = warehouse.load_rows(asset.published_table).num_rows
    backfill(warehouse, asset, T0, T0 + 2 * MINUTE)
    assert check_parity(warehouse, asset).unexplained_count == 0
    backfill(warehouse, asset)
    assert check_parity(warehouse, asset).unexplained_count == 0
    assert warehouse.load_rows(asset.published_table).num_rows == before
    correct(warehouse, asset)
    if asset.window != SESSIONS.window:
        # A session of the streamed result may be part of a larger one in the complete result.
        assert check_parity(warehouse, asset).unexplained_count == 0
    if asset.window == PER_MINUTE.window:
        whole = reference(ARRIVALS, complete=True)
        assert {k: r["n"] for k, r in published(warehouse, asset).items()} == {
            k: r["n"] for k, r in whole.items()
        }


@pytest.mark.usefixtures("many")
def test_computed_files_are_committed_as_they_are(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    backfill(warehouse, PLAIN)
    for table in (PLAIN.state_table, PLAIN.published_table):
        assert all("/part-" in file for file in _files(warehouse, table)), table
    assert warehouse.read_frame(PLAIN.state_table).where(f"{MARKER} IS NOT NULL").count() == 1
