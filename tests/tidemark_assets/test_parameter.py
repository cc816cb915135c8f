"""Test windows as a parameter of an asset, in the annotated type and without an engine."""

from uuid import uuid4

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from helpers.data.tables import publish
from tidemark.base.instants import parse_duration, parse_instant
from tidemark.base.settings import Settings
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.parameter import WINDOWS, windows_reader

HOUR, DAY = parse_duration("1 hour"), parse_instant("2013-01-01")
DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01")


@pytest.fixture
def in_a_bucket(settings: Settings, bucket: str) -> Settings:
    """Return the settings of a home whose warehouse is in an object store."""
    return settings.model_copy(update={"warehouse": f"{bucket}/{uuid4().hex}"})


def test_windows_are_loaded_from_an_object_store(
    in_a_bucket: Settings, instance: dg.DagsterInstance
) -> None:
    test_windows_are_loaded_in_the_type_of_the_parameter(in_a_bucket, instance)


def test_windows_are_loaded_in_the_type_of_the_parameter(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    publish(settings, "hourly", 0, [DAY, DAY + HOUR, DAY + 24 * HOUR], HOUR)
    got: dict[str, object] = {}

    @dg.asset(partitions_def=DAYS)
    def as_pandas(hourly: pd.DataFrame) -> None:
        got["pandas"] = hourly["events"].tolist()

    @dg.asset(partitions_def=DAYS)
    def as_polars(hourly: pl.DataFrame) -> None:
        got["polars"] = hourly["events"].to_list()
        got["type"] = hourly.schema["window_start"]

    @dg.asset
    def as_arrow(hourly: pa.Table) -> None:
        got["arrow"] = hourly["events"].to_pylist()

    hourly = dg.AssetSpec("hourly", partitions_def=DAYS).with_io_manager_key(WINDOWS)
    made = [as_pandas, as_polars, as_arrow]
    done = dg.materialize(
        [hourly, *made],
        selection=made,
        resources={"tidemark": TidemarkResource(settings), WINDOWS: windows_reader},
        partition_key="2013-01-01",
        instance=instance,
    )
    assert done.success
    assert (got["pandas"], got["polars"], got["arrow"]) == ([2, 2], [2, 2], [2, 2, 2])
    assert got["type"] == pl.Datetime("us", "UTC")
