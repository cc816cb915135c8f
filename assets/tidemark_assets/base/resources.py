"""The engine, as a resource of Dagster steps.

Dagster stores and shows the configuration of resources. The configuration therefore has only the
locations of the engine and the tables, and never the engine's token. If an environment variable
holds the token, the configuration has the name of that variable. Otherwise each process finds the
token as the command line does.
"""

from typing import Any, cast

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.engine.connect import prepare_session
from tidemark.engine.loss import is_closed
from tidemark.engine.project_code import send_code
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.snapshot.snapshot import Snapshot


class TidemarkResource:
    """The warehouse, and a session of the engine. A step that needs the engine starts it first."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._warehouse: Warehouse | None = None

    @property
    def address(self) -> str:
        """The address of the engine, with the token; the engine is started unless it runs."""
        return engine.ensure_engine(self.settings)

    @property
    def session(self) -> SparkSession:
        """A session of the engine."""
        return self.warehouse.spark

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, with a session of the engine. If the engine of the last session was lost,
        it is opened with a new session: Dagster retries a step in the same process."""
        if self._warehouse is None or is_closed(self._warehouse.spark):
            self._warehouse = Warehouse.of_project(self.settings, self._open_session())
        return self._warehouse

    def _open_session(self) -> SparkSession:
        spark = LazyPySparkResource(spark_config={"spark.remote": self.address}).spark_session
        prepare_session(spark, self.settings)
        send_code(spark, self.settings)
        return spark

    @property
    def tables(self) -> Warehouse:
        """The warehouse without the engine, for code that does not use the engine."""
        no_spark = cast(SparkSession, None)
        location = str(self.settings.warehouse)
        database = self.settings.database
        return Warehouse(no_spark, location, database, registered=False)

    def snapshot(self, *transforms: Definition) -> Snapshot:
        """Return a reader of the tables that does not use the engine, for sensors and checks."""
        return Snapshot(self.settings, transforms)

    def landing(self, source: Source) -> str:
        """Return the path or address of the folder in which a source's files arrive."""
        return self.settings.landing_of(source.name)


class Tidemark(dg.ConfigurableResource[TidemarkResource]):
    """The warehouse, and the Spark engine, to which dagster-pyspark connects.

    Values that are not given here come from Tidemark's settings.
    """

    home: str = Field(description="The folder in which Tidemark keeps all its data.")
    database: str = Field(description="The database that contains the tables.")
    remote: str | None = Field(
        default=None,
        description=(
            "The address of an engine that is already running, without its token. If it is not "
            "set, Tidemark starts an engine."
        ),
    )
    engine_port: int = Field(description="The local port of the engine that Tidemark starts.")
    token: str | None = Field(
        default=None,
        description=(
            "The variable that holds the secret shared with the engine. If it is not set, "
            "Tidemark's settings determine it."
        ),
    )

    def create_resource(self, context: dg.InitResourceContext) -> TidemarkResource:
        settings: dict[str, Any] = {"home": self.home, "database": self.database}
        settings["engine_port"] = self.engine_port
        if self.remote is not None and self.remote != _strip_parameters(Settings().remote):
            settings["remote"] = self.remote
        if self.token is not None:
            settings["token"] = self.token
        return TidemarkResource(Settings(**settings))


def resource(settings: Settings, token: str | None = None) -> Tidemark:
    """Return the resource `tidemark`, which is created for each run.

    Args:
        token: the variable that holds the token, if there is one.
    """
    return Tidemark(
        home=str(settings.home),
        database=settings.database,
        engine_port=settings.engine_port,
        remote=_strip_parameters(settings.remote),
        token=None if token is None else dg.EnvVar(token),
    )


def _strip_parameters(remote: str | None) -> str | None:
    """Return an address without its parameters, which include the token."""
    if remote is None:
        return None
    return remote.partition("/;")[0]
