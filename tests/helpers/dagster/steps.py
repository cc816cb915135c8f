"""Dagster's steps in the tests' own process."""

from functools import cached_property

import dagster as dg
from pyspark.sql import SparkSession

from helpers.data.support import MINUTE, T0
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark_assets.base.resources import TidemarkResource

QUARTERS = dg.TimeWindowPartitionsDefinition(
    start=as_datetime(T0 - T0 % (15 * MINUTE)),
    cron_schedule="*/15 * * * *",
    fmt="%Y-%m-%d %H:%M",
)
"""Partitions for the readings of `support`: all of `some_arrivals` is in one or two of them."""

MINUTES = dg.TimeWindowPartitionsDefinition(
    start=as_datetime(T0 - 60 * MINUTE),
    end=as_datetime(T0 + 60 * MINUTE),
    cron_schedule="* * * * *",
    fmt="%Y-%m-%d %H:%M",
)
"""A partition for each window of `PER_MINUTE`."""


class OnTestSession(TidemarkResource):
    """The resource on the session of the tests: one process, one session."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        super().__init__(settings)
        self._spark = spark

    @cached_property
    def session(self) -> SparkSession:
        return self._spark


def partitions_told(instance: dg.DagsterInstance, asset: str) -> list[tuple[str, str]]:
    """The partitions that Dagster knows as materialized, in the order of the reports, each with
    the run of Dagster that told it: none of a sensor's report."""
    key = dg.AssetKey.from_user_string(asset)
    found = instance.fetch_materializations(key, limit=1000, ascending=True)
    return [(r.partition_key or "", r.run_id) for r in found.records]
