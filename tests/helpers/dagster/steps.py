"""Dagster steps in the process of the tests."""

import dagster as dg
from pyspark.sql import SparkSession

from helpers.data.support import MINUTE, T0
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Place, Warehouse
from tidemark_assets.base.resources import TidemarkResource

QUARTERS = dg.TimeWindowPartitionsDefinition(
    start=as_datetime(T0 - T0 % (15 * MINUTE)),
    cron_schedule="*/15 * * * *",
    fmt="%Y-%m-%d %H:%M",
)
"""Partitions for the readings of `support`: `some_arrivals` fits into one or two of them."""

MINUTES = dg.TimeWindowPartitionsDefinition(
    start=as_datetime(T0 - 60 * MINUTE),
    end=as_datetime(T0 + 60 * MINUTE),
    cron_schedule="* * * * *",
    fmt="%Y-%m-%d %H:%M",
)
"""A partition for each window of `PER_MINUTE`."""


class OnTestSession(TidemarkResource):
    """The resource with the Spark session of the tests.

    Args:
        registered: true if the tests read tables by name.
    """

    def __init__(
        self, settings: Settings, spark: SparkSession, *, registered: bool = False
    ) -> None:
        super().__init__(settings)
        place = Place(settings.warehouse, settings.database, registered)
        self._warehouse = Warehouse(spark, *place)


def partitions_told(instance: dg.DagsterInstance, asset: str) -> list[tuple[str, str]]:
    """Return the materialized partitions in the order of the reports, each with its Dagster run.

    The run is empty if a sensor reported the partition.
    """
    key = dg.AssetKey.from_user_string(asset)
    found = instance.fetch_materializations(key, limit=1000, ascending=True)
    return [(r.partition_key or "", r.run_id) for r in found.records]
