"""Windows of the weather."""

from pyspark.sql import DataFrame

import tidemark as tm
from tidemark_assets.weather.sources import weather

POSSIBLE_WIND = tm.expect.between(
    "wind",
    0,
    200,
    level="warning",
    description="The recording has one impossible reading, which stays in it to show a warning: "
    "1,048 miles an hour at Newark on February 12, 2013.",
)
"""The strongest wind ever measured on the ground is 253 miles an hour."""


@tm.windowed_asset(
    source=weather,
    keys=["origin"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="6 hours",
    aggregates={
        "readings": tm.agg.count(),
        "temperature": tm.agg.mean("temp"),
        "coldest": tm.agg.min("temp"),
        "warmest": tm.agg.max("temp"),
        "wind": tm.agg.mean("wind_speed"),
        "gust": tm.agg.max("wind_gust"),
        "visibility": tm.agg.min("visib"),
        "precipitation": tm.agg.sum("precip"),
    },
    expectations=[
        tm.expect.between("readings", 1, 1),
        POSSIBLE_WIND,
        tm.expect.between("coldest", -40),
    ],
)
def temperature_hourly(weather: DataFrame) -> DataFrame:
    """Temperature, wind, visibility and precipitation, by airport and hour."""
    return weather


@tm.windowed_asset(
    source=weather,
    keys=["origin"],
    window=tm.Calendar("day", "America/New_York"),
    allowed_lateness="6 hours",
    aggregates={
        "readings": tm.agg.count(),
        "temperature": tm.agg.mean("temp"),
        "coldest": tm.agg.min("temp"),
        "warmest": tm.agg.max("temp"),
        "gust": tm.agg.max("wind_gust"),
        "precipitation": tm.agg.sum("precip"),
        "wet_hours": tm.agg.count(where="precip > 0"),
        "foggy_hours": tm.agg.count(where="visib < 1"),
    },
    expectations=[
        tm.expect.between("readings", 23, 25, level="warning"),
        tm.expect.between("gust", 0, 200),
    ],
)
def weather_days(weather: DataFrame) -> DataFrame:
    """An airport's weather by calendar day, from midnight to midnight in New York."""
    return weather
