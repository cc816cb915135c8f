"""Test the recording of flights: a year as files, in the order in which the records arrive."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F

from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.flights.connectors import CANCELLED_AFTER, DIVERTED_AFTER, ingestion, recording
from tidemark_assets.flights.sources import flights
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.ingest.play import play_files


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("year")
    assert [p.number for p in recording.write_files(folder, Excerpt())] == list(range(1, 1463))
    return folder


@pytest.fixture(scope="module")
def records(year: Path) -> pd.DataFrame:
    """Return the rows of all files in file order, with the time of each file."""
    files = sorted(year.iterdir(), key=lambda p: p.stat().st_mtime)
    parts = [pd.read_csv(p).assign(file=p.stat().st_mtime, opens=p.name[8:23]) for p in files]
    found = pd.concat([p for p in parts if len(p)], ignore_index=True)
    for column in ("departure", "time_hour"):
        found[column] = pd.to_datetime(found[column])
    return found


@pytest.mark.nightly
@pytest.mark.slow
def test_every_flight_lands_once(records: pd.DataFrame) -> None:
    assert len(records) == 336_776
    assert not records.duplicated(["time_hour", "carrier", "flight", "origin"]).any()
    assert list(records.columns[:-2]) == list(flights.columns)


@pytest.mark.slow
def test_rows_are_ordered_and_within_the_interval_of_their_file(records: pd.DataFrame) -> None:
    scheduled = records["time_hour"] + pd.to_timedelta(records["minute"], unit="min")
    delay = pd.to_timedelta(records["dep_delay"].fillna(0), unit="min")
    assert (records["departure"] == scheduled + delay).all()
    airborne = pd.to_timedelta(records["air_time"], unit="min")
    airborne[records["air_time"].isna()] = pd.Timedelta(DIVERTED_AFTER)
    airborne[records["dep_time"].isna()] = pd.Timedelta(CANCELLED_AFTER)
    landing = records["departure"] + airborne
    assert landing.is_monotonic_increasing
    closes = pd.to_datetime(records["file"], unit="s", utc=True)
    assert (landing < closes).all()
    assert (landing >= closes - pd.Timedelta(hours=6)).all()
    assert (pd.to_datetime(records["opens"], utc=True) + pd.Timedelta(hours=6) == closes).all()


def test_a_replay_writes_identical_files_and_keeps_existing_ones(
    year: Path, tmp_path: Path
) -> None:
    landed = list(recording.write_files(tmp_path, Excerpt(start="2013-03-01", days=2)))
    assert [p.number for p in landed] == list(range(1, 9))
    assert all(p.path.read_bytes() == (year / p.path.name).read_bytes() for p in landed)
    assert landed[0].path.stat().st_mtime == datetime(2013, 3, 1, 6, tzinfo=UTC).timestamp()
    os.utime(landed[0].path, (1, 1))
    more = list(recording.write_files(tmp_path, Excerpt(start="2013-03-01", days=3)))
    assert len(more) == 12
    assert more[0].path.stat().st_mtime == 1


def test_flights_are_ingested_out_of_order(warehouse: Warehouse, tmp_path: Path) -> None:
    list(play_files(warehouse, ingestion, tmp_path, Excerpt(days=3), batch=None))
    log = Log(warehouse, flights)
    timeline = log.read_timeline()
    assert len(timeline) == 12
    rows = log.read_events(-1, 11)
    assert rows.count() == sum(a.rows for a in timeline) > 2000
    assert rows.where("departure is null").count() == 0
    late = rows.where(F.col("departure") < F.col("watermark")).count()
    assert 0 < late < rows.count() / 10
