"""Register tables in the engine's catalog, so that SQL and dbt find them by name.

Tidemark itself finds tables by location and does not need the catalog.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base.errors import DataError

_RunInBackground = Callable[[Callable[[], None]], Future[None]]


class Catalog:
    """The tables of one database in the catalog."""

    def __init__(
        self,
        spark: SparkSession,
        database: str,
        path: Callable[[str], str],
        run_in_background: _RunInBackground,
    ) -> None:
        self._spark = spark
        self._database = database
        self._path = path
        self._run_in_background = run_in_background
        self._begun = False
        # The registrations in background threads; None outside of `registering_in_background`.
        self._pending: list[Future[None]] | None = None

    def register(self, table: str) -> None:
        """Register a table if it is not registered yet.

        Within `registering_in_background`, the registration runs in a background thread.
        """
        if self._pending is None:
            self._register(table)
        else:
            self._pending.append(self._run_in_background(lambda: self._register(table)))

    @contextmanager
    def registering_in_background(self) -> Iterator[None]:
        """Register tables in background threads during a `with` block, and wait at its end.

        The work in the block must not need the catalog.
        """
        before, own = self._pending, list[Future[None]]()
        self._pending = own
        try:
            yield
            self.wait_until_registered()
        finally:
            self._pending = before
            wait(own)

    def wait_until_registered(self) -> None:
        for entry in self._pending or ():
            entry.result()

    def restore(self, tables: Iterable[str]) -> None:
        """Register the given existing tables that the catalog lacks.

        An in-memory catalog loses its tables when its server stops.
        """
        self._unless_there(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
        known = {
            row["tableName"]
            for row in self._spark.sql(f"SHOW TABLES IN `{self._database}`").collect()
        }
        for table in tables:
            if table not in known:
                self._register(table)

    def unregister(self, table: str) -> None:
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
        self._spark.sql(f"DROP TABLE IF EXISTS {self._name(table)}")

    def _register(self, table: str) -> None:
        place, path = self._name(table), self._path(table)
        if not self._begun:
            self._unless_there(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
            self._begun = True
        if self._unless_there(f"CREATE TABLE {place} USING delta LOCATION '{path}'"):
            return
        found = self._spark.sql(f"DESCRIBE DETAIL {place}").collect()[0]["location"]
        if not str(found).rstrip("/").endswith(path.split("://")[-1]):
            raise DataError(
                f"Table '{table}' can't be registered: the engine's catalog has it at another "
                f"location, '{found}'. Set the warehouse to the location of its tables, or choose "
                "another database."
            )

    def _name(self, table: str) -> str:
        return f"`{self._database}`.`{table}`"

    def _unless_there(self, statement: str) -> bool:
        """Run a CREATE statement. Return False if the object exists already."""
        try:
            self._spark.sql(statement)
        except PySparkException as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            return False
        return True
