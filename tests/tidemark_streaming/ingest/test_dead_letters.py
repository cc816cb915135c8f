"""Rows that can't be decoded are dead letters, and corrected ones are replayed once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from helpers.data.landing import HEADER, SOURCE, connector, land, log_rows
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.engine import ensure_engine
from tidemark.store.event_log.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.dead_letters import find_reprocessed, letter_keys, reprocess_letters
from tidemark_streaming.ingest.ingest import end_source, ingest

ROWS = ["gibberish,a,0", "2023-11-14,a,1", "2023-11-14,a,x", "2023-11-14,a,3,9"]


def letters(warehouse: Warehouse) -> pa.Table:
    found = warehouse.load_rows(SOURCE.dead_letters_table)
    return found.sort_by([("arrival", "ascending"), ("position", "ascending")])


def mended(found: pa.Table, *values: str) -> pa.Table:
    """Return dead letters with replaced bytes."""
    place = found.column_names.index("bytes")
    return found.set_column(place, "bytes", pa.array([v.encode() for v in values], pa.binary()))


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Return a folder with two files, each with three malformed rows."""
    folder = tmp_path / "in"
    for n in range(2):
        land(folder, f"{n}.csv", HEADER + "".join(f"{row}\n" for row in ROWS), n * 60)
    return folder


def test_a_malformed_row_is_a_dead_letter_with_position_and_reason(
    warehouse: Warehouse, landing: Path
) -> None:
    arrivals = [a for commit in ingest(warehouse, connector(landing)) for a in commit.arrivals]
    assert [(a.rows, a.dead_letters) for a in arrivals] == [(1, 3), (1, 3)]
    assert Log(warehouse, SOURCE).read_timeline() == arrivals
    assert [(r[3], r[4]) for r in log_rows(warehouse)] == [(0, 1), (1, 1)]
    found = letters(warehouse)
    assert found.column_names == list(DEAD_LETTER_COLUMNS)
    assert letter_keys(found) == [(a, p) for a in (0, 1) for p in (0, 2, 3)]
    first = found.slice(0, 3).to_pydict()
    assert first["bytes"] == [ROWS[n].encode() for n in (0, 2, 3)]
    assert first["reason"] == [
        "The field 'at' is not a valid TIMESTAMP.",
        "The field 'value' is not a valid INT.",
        "The record has 4 fields instead of 3.",
    ]
    assert first["read_from"] == ["0.csv#0", "0.csv#2", "0.csv#3"]
    assert first["correlation_id"] == ["sensors:0:0", "sensors:0:2", "sensors:0:3"]
    clocks = [int(at.timestamp() * 1_000_000) for at in first["arrived_at"]]
    assert clocks == [arrivals[0].arrived_at] * 3


def test_a_corrected_dead_letter_is_replayed_once_as_a_new_arrival(
    warehouse: Warehouse, landing: Path
) -> None:
    list(ingest(warehouse, connector(landing)))
    before = letters(warehouse)
    good = mended(before.slice(1, 2), "2023-11-14,a,2", "2023-11-14,a,3,9")
    outcome = reprocess_letters(warehouse, connector(landing), good)
    (arrival,) = outcome.arrivals
    assert outcome.brought == arrival.rows == 1
    assert outcome.refused == {(0, 3): "The record has 4 fields instead of 3."}
    assert (arrival.arrival, arrival.dead_letters) == (2, 0)
    assert arrival.position == '{"reprocessed dead letters":[[0,2,2]]}'
    assert log_rows(warehouse)[-1][1:5] == ("a", 2, 2, 0)
    assert log_rows(warehouse)[-1][7:9] == ("0.csv#2", "sensors:0:2")
    assert letters(warehouse) == before
    again = reprocess_letters(warehouse, connector(landing), good)
    assert (again.arrivals, again.brought) == ((), 0)
    # Later files are ingested as before.
    land(landing, "2.csv", HEADER + "2023-11-14,a,9\n", 120)
    (later,) = (a for commit in ingest(warehouse, connector(landing)) for a in commit.arrivals)
    assert (later.arrival, later.rows) == (3, 1)
    assert find_reprocessed(Log(warehouse, SOURCE).read_timeline()) == {(0, 2): 2}


def test_a_source_that_has_ended_refuses_a_replay(warehouse: Warehouse, landing: Path) -> None:
    list(ingest(warehouse, connector(landing)))
    one, other = (mended(letters(warehouse).slice(n, 1), "2023-11-14,a,2") for n in range(2))
    reprocess_letters(warehouse, connector(landing), one)
    end_source(warehouse, SOURCE)
    assert find_reprocessed(Log(warehouse, SOURCE).read_timeline()) == {(0, 0): 2}
    with pytest.raises(DataError, match=r"ended with arrival 3, .* accept the 1 pending arrival"):
        reprocess_letters(warehouse, connector(landing), other)


KILLED = """
import os, signal, sys
from pathlib import Path
from helpers.data.landing import SOURCE, connector
from pyspark.sql import SparkSession
from test_dead_letters import letters, mended
from tidemark.store.event_log.fence import Fence
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.dead_letters import reprocess_letters
from tidemark_streaming.ingest.ingest import ingest

remote, location, database, folder, what, before = sys.argv[1:]
append = Fence.append_rows

def dying(self, *given, **named):
    if self.table == before:
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, *given, **named)
    if before == "after " + self.table:
        os.kill(os.getpid(), signal.SIGKILL)

Fence.append_rows = dying
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), location, database)
if what == "ingest":
    list(ingest(warehouse, connector(Path(folder)), batch=None))
else:
    rows = mended(letters(warehouse).slice(0, 1), "2023-11-14,a,7")
    reprocess_letters(warehouse, connector(Path(folder)), rows)
"""

POINTS = ["sensors_dead_letters", "sensors_timeline", "after sensors_timeline"]


def killed(engine: Settings, warehouse: Warehouse, landing: Path, what: str, point: str) -> None:
    place = [ensure_engine(engine), warehouse.location, warehouse.database, str(landing)]
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *place, what, point],
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL


# Starts a process for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("point", mostly_nightly(POINTS))
def test_an_ingest_killed_between_commits_keeps_each_dead_letter_once(
    engine: Settings, warehouse: Warehouse, landing: Path, point: str
) -> None:
    killed(engine, warehouse, landing, "ingest", point)
    list(ingest(warehouse, connector(landing)))
    assert letter_keys(letters(warehouse)) == [(a, p) for a in (0, 1) for p in (0, 2, 3)]
    assert [(a.rows, a.dead_letters) for a in Log(warehouse, SOURCE).read_timeline()] == [
        (1, 3)
    ] * 2
    assert len(log_rows(warehouse)) == 2


# Starts a process for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("point", mostly_nightly(POINTS[1:]))
def test_a_replay_killed_between_commits_ingests_the_row_once(
    engine: Settings, warehouse: Warehouse, landing: Path, point: str
) -> None:
    list(ingest(warehouse, connector(landing)))
    killed(engine, warehouse, landing, "replay", point)
    again = reprocess_letters(
        warehouse, connector(landing), mended(letters(warehouse).slice(0, 1), "2023-11-14,a,7")
    )
    assert again.brought == (1 if point == "sensors_timeline" else 0)
    assert [r[2] for r in log_rows(warehouse)] == [1, 1, 7]
