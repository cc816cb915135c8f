"""The stations' readings arrive when they are transmitted: at once, or after an outage."""

import pandas as pd
import pytest

from tidemark_assets.weather.feed import LONGEST, SENT_AFTER, SHORTEST, outages, recording
from tidemark_assets.weather.sources import weather
from tidemark_streaming.files.recording import ARRIVES


@pytest.fixture(scope="module")
def readings() -> pd.DataFrame:
    return recording.records()


def test_every_reading_of_the_year_is_there_once(readings: pd.DataFrame) -> None:
    assert len(readings) == 26_115
    assert not readings.duplicated(["observed", "origin"]).any()
    assert {*weather.columns} <= {*readings.columns}


def test_a_station_that_is_on_line_is_heard_at_once(readings: pd.DataFrame) -> None:
    assert 0.97 < (readings[ARRIVES] - readings["observed"] == SENT_AFTER).mean() < 0.99


def test_a_station_that_was_off_line_delivers_all_it_kept_when_it_is_back(
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


def test_what_a_station_sends_is_in_order(readings: pd.DataFrame) -> None:
    for _, own in readings.groupby("origin"):
        assert own.sort_values(ARRIVES, kind="stable")["observed"].is_monotonic_increasing
