"""Test the recording of weather: readings arrive at once, or after an outage."""

import pandas as pd
import pytest

from tidemark_assets.weather.connectors import LONGEST, SENT_AFTER, SHORTEST, outages, recording
from tidemark_assets.weather.sources import weather
from tidemark_streaming.files.recording import ARRIVES


@pytest.fixture(scope="module")
def readings() -> pd.DataFrame:
    return recording.records()


def test_every_reading_of_the_year_occurs_once(readings: pd.DataFrame) -> None:
    assert len(readings) == 26_115
    assert not readings.duplicated(["observed", "origin"]).any()
    assert {*weather.columns} <= {*readings.columns}


def test_an_online_station_delivers_at_once(readings: pd.DataFrame) -> None:
    assert 0.97 < (readings[ARRIVES] - readings["observed"] == SENT_AFTER).mean() < 0.99


def test_a_station_delivers_its_backlog_after_an_outage(
    readings: pd.DataFrame,
) -> None:
    told = 0
    for station in ("EWR", "JFK", "LGA"):
        own = readings[readings["origin"] == station]
        for gone, back in outages(station):
            assert SHORTEST <= back - gone <= LONGEST
            kept = own[own["observed"].between(gone, back, inclusive="left")]
            assert (kept[ARRIVES] == back + SENT_AFTER).all()
            told += len(kept)
    assert told == (readings[ARRIVES] - readings["observed"] > SENT_AFTER).sum() == 624


def test_readings_of_a_station_arrive_in_order(readings: pd.DataFrame) -> None:
    for _, own in readings.groupby("origin"):
        assert own.sort_values(ARRIVES, kind="stable")["observed"].is_monotonic_increasing
