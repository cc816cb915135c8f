"""Tests of replays, which recompute from a given arrival on, in place or in side tables."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.redefined import WIDER
from helpers.data.runs import dies, run_all
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
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define.rollup import rollup
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.run.change import replay as work
from tidemark.run.runner import incremental
from tidemark.store.asset import Asset
from tidemark.store.event_log.log import Log
from tidemark.store.lineage import StaleError
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

ARRIVALS = some_arrivals(count=7, size=24)
SINCE = 4


def halved(rows: DataFrame) -> DataFrame:
    return rows.withColumn("value", F.col("value") / 2)


def reached() -> set[int]:
    """Return the starts of the windows with an event from arrival `SINCE` on."""
    times = [e.ts for events in ARRIVALS[SINCE:] for e in events if e.ts is not None]
    return {ts - ts % MINUTE for ts in times}


def test_a_replay_recomputes_only_windows_of_its_arrivals(warehouse: Warehouse) -> None:
    """The function was fixed in the meantime, and each table gets one commit."""
    ingest(warehouse, READINGS, ARRIVALS)
    run_all(warehouse, PER_MINUTE, 2)
    before = published(warehouse, PER_MINUTE)
    mended = replace(PER_MINUTE, function=halved)
    versions = [
        warehouse.newest_version(t) for t in (PER_MINUTE.published_table, PER_MINUTE.state_table)
    ]
    done = work.replay_windows(warehouse, mended, SINCE)
    assert done.facts is not None
    assert (done.table, done.through) == ("per_minute", len(ARRIVALS))
    now = [
        warehouse.newest_version(t) for t in (PER_MINUTE.published_table, PER_MINUTE.state_table)
    ]
    assert now == [version + 1 for version in versions]
    after = published(warehouse, mended)
    assert after.keys() == before.keys()
    starts = reached()
    assert 0 < len({start for start, _ in after} & starts) < len({start for start, _ in after})
    for window, row in after.items():
        half = window[0] in starts
        assert row["most"] == before[window]["most"] / (2 if half else 1), window
        assert row["n"] == before[window]["n"]
    # A replay of all arrivals gives the results of the definition.
    work.replay_windows(warehouse, mended, 0)
    assert check_parity(warehouse, mended).is_equal


# Many runs.
@pytest.mark.slow
@pytest.mark.parametrize(
    "window",
    mostly_nightly([Tumbling("1 minute"), Sliding("2 minutes", "1 minute"), Session("20 seconds")]),
    ids=str,
)
def test_parity_holds_after_replays_next_to_a_stream(warehouse: Warehouse, window: Window) -> None:
    asset = replace(PER_MINUTE, window=window)
    ingest(warehouse, READINGS, ARRIVALS[:5], ends=False)
    incremental(warehouse, asset, limit=3)
    # Arrivals that no run had read yet are included, and count once.
    assert work.replay_windows(warehouse, asset, 3).through == 4
    assert check_parity(warehouse, asset).is_equal
    ingest(warehouse, READINGS, ARRIVALS[5:])
    incremental(warehouse, asset, pinned_definition=True)
    side = work.replay_to_side_tables(warehouse, asset, SINCE, "tried")
    assert side.facts is not None
    assert check_parity(warehouse, asset).is_equal
    theirs = rows(warehouse, side.table)
    assert theirs
    mine = rows(warehouse, asset.published_table)
    whole = len(theirs) == len(mine)
    assert whole == isinstance(window, Session)
    assert all(row in mine for row in theirs)


def rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    """Return a table's rows without commit numbers and the mean, which depends on the order."""
    found = warehouse.load_rows(table).to_pylist()
    return [
        {k: v for k, v in row.items() if k not in ("commit_number", "as_of", "average")}
        for row in found
    ]


@pytest.mark.slow
def test_a_replay_to_side_tables_changes_no_other_table(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    own = [*PER_MINUTE.own_tables, "readings_log", "readings_timeline"]
    before = [warehouse.newest_version(table) for table in own]
    work.replay_to_side_tables(warehouse, WIDER, 0, "tried")
    side = work.replay_to_side_tables(warehouse, WIDER, SINCE, "tried")
    assert [warehouse.newest_version(table) for table in own] == before
    assert side.windows == len(rows(warehouse, "per_minute__tried")) > 0
    assert check_parity(warehouse, work.side_definition(WIDER, "tried"), *span(warehouse)).is_equal
    with pytest.raises(StaleError, match="made by another definition"):
        work.replay_windows(warehouse, WIDER, SINCE)
    assert [warehouse.newest_version(table) for table in own] == before
    for name in ("rebuild", "Tried", "a b"):
        with pytest.raises(DefinitionError, match="A replay can't go into"):
            work.replay_to_side_tables(warehouse, WIDER, SINCE, name)


def span(warehouse: Warehouse) -> tuple[int, int]:
    """Return the range of the newest windows, which the side table has."""
    newest = max(reached())
    return newest - MINUTE, newest + MINUTE


def test_a_replay_starts_at_an_arrival_or_an_instant(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    log = Log(warehouse, READINGS)
    assert work.find_first_arrival(log, 2, None) == 2
    assert [work.find_first_arrival(log, None, T0 + n) for n in (-5, 0, 1, MINUTE)] == [0, 0, 1, 1]
    for arrival, instant in ((3, None), (None, T0 + 3 * MINUTE)):
        with pytest.raises(DataError, match=r"has no arrival .*: its newest arrival is 2, from 20"):
            work.find_first_arrival(log, arrival, instant)
    with pytest.raises(
        DefinitionError, match="either the first arrival or the first instant, but not both"
    ):
        work.find_first_arrival(log, 1, T0)
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    with pytest.raises(DefinitionError, match="replay 'per_minute', then run 'whole'"):
        work.replay_windows(warehouse, whole, 0)
    with pytest.raises(DefinitionError, match="replay 'per_minute', then run 'whole'"):
        work.replay_to_side_tables(warehouse, whole, 0, "tried")
    ingest(warehouse, READINGS, [])
    assert work.replay_windows(warehouse, PER_MINUTE, 3).facts is None


_DYING = """
import json
import sys
from pyspark.sql import SparkSession
from helpers.data.support import PER_MINUTE
from tidemark.run.change import replay as work
from tidemark.store.warehouse import Warehouse

_, remote, place, way, *name = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
getattr(work, way)(warehouse, PER_MINUTE, 4, *name)
"""


# Once for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("where", mostly_nightly(["published", "state", "ledger"]))
def test_a_killed_replay_counts_nothing_twice(
    engine: Settings, warehouse: Warehouse, where: str
) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    assert dies(_DYING, engine, warehouse, where, "replay_to_side_tables", "tried")
    assert check_parity(warehouse, PER_MINUTE).is_equal
    side = work.replay_to_side_tables(warehouse, PER_MINUTE, SINCE, "tried")
    assert side.windows == len(rows(warehouse, side.table))
    assert dies(_DYING, engine, warehouse, where, "replay_windows")
    # The next run completes it.
    incremental(warehouse, PER_MINUTE)
    asset = Asset(warehouse, PER_MINUTE)
    assert (
        asset.published_commit_number()
        == asset.state.read_last_commit().commit_number
        == (0 if where == "state" else 1)
    )
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)
    work.replay_windows(warehouse, PER_MINUTE, SINCE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)
