"""The engine, as a resource of Dagster steps."""

from functools import cached_property
from pathlib import Path
from typing import cast

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.glance import Glance


class TidemarkResource:
    """A session of the engine, started when a step first asks for it, and the warehouse.

    It is a plain object and not configurable, because Dagster stores and shows what resources are
    configured with, and the engine's address holds its token.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def address(self) -> str:
        """The address of the engine, which is started unless it runs; it holds the token.

        Raises:
            EngineError: the engine can't be started or reached, in one sentence.
        """
        return engine.ensure(self.settings)

    @cached_property
    def session(self) -> SparkSession:
        """A session of the engine."""
        spark = LazyPySparkResource(spark_config={"spark.remote": self.address}).spark_session
        engine.exclude_unsafe(spark)
        return spark

    @cached_property
    def warehouse(self) -> Warehouse:
        """The tables."""
        return Warehouse(self.session, str(self.settings.warehouse), self.settings.database)

    @property
    def tables(self) -> Warehouse:
        """The tables, for who asks the engine for nothing."""
        nobody = cast(SparkSession, None)
        place, database = str(self.settings.warehouse), self.settings.database
        return Warehouse(nobody, place, database, registered=False)

    def glance(self) -> Glance:
        """A reader of the tables that needs no engine: all that a sensor may use."""
        return Glance(self.settings)

    def landing(self, source: Source) -> Path:
        """The folder in which a source's files land."""
        return self.settings.landing / source.name


def resource(settings: Settings) -> dg.ResourceDefinition:
    """The resource `tidemark`, made anew for each run."""
    return dg.ResourceDefinition(
        lambda _: TidemarkResource(settings),
        description="The Spark engine of Tidemark, by dagster-pyspark, and its warehouse.",
    )
