"""Windows of the weather."""

from pyspark.sql import DataFrame

from tidemark import aggregate as agg
from tidemark.quality import between
from tidemark.transform import windowed_asset
from tidemark.window import Calendar, Tumbling
from tidemark_assets.weather.sources import weather


@windowed_asset(
    source=weather,
    keys=["origin"],
    window=Tumbling("1 hour"),
    allowed_lateness="6 hours",
    aggregates={
        "readings": agg.count(),
        "temperature": agg.mean("temp"),
        "coldest": agg.min("temp"),
        "warmest": agg.max("temp"),
        "wind": agg.mean("wind_speed"),
        "gust": agg.max("wind_gust"),
        "visibility": agg.min("visib"),
        "precipitation": agg.sum("precip"),
    },
    # The strongest wind ever measured on the ground is 253 miles an hour.
    expectations=[between("readings", 1, 1), between("wind", 0, 200), between("coldest", -40)],
)
def temperature_hourly(weather: DataFrame) -> DataFrame:
    """Temperature, wind, visibility and precipitation, by airport and hour."""
    return weather


@windowed_asset(
    source=weather,
    keys=["origin"],
    window=Calendar("day", "America/New_York"),
    allowed_lateness="6 hours",
    aggregates={
        "readings": agg.count(),
        "temperature": agg.mean("temp"),
        "coldest": agg.min("temp"),
        "warmest": agg.max("temp"),
        "gust": agg.max("wind_gust"),
        "precipitation": agg.sum("precip"),
        "wet_hours": agg.count(where="precip > 0"),
        "foggy_hours": agg.count(where="visib < 1"),
    },
    expectations=[between("readings", 23, 25, level="warning"), between("gust", 0, 200)],
)
def weather_days(weather: DataFrame) -> DataFrame:
    """An airport's weather by calendar day, from midnight to midnight in New York."""
    return weather
