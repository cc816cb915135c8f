"""Dagster's steps in the tests' own process."""

from functools import cached_property

from pyspark.sql import SparkSession

from tidemark.base.settings import Settings
from tidemark_assets.resources import TidemarkResource


class OnTestSession(TidemarkResource):
    """The resource on the session of the tests: one process, one session."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        super().__init__(settings)
        self._spark = spark

    @cached_property
    def session(self) -> SparkSession:
        return self._spark
