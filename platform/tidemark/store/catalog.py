"""The engine's catalog, where SQL and dbt find the tables by their names. Tidemark itself finds
them by their location, and has no need of it."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base.errors import DataError

Beside = Callable[[Callable[[], None]], Future[None]]


class Catalog:
    """The tables of one database in the catalog.

    Args:
        path: where a table lies.
        beside: does work at the same time.
    """

    def __init__(
        self, spark: SparkSession, database: str, path: Callable[[str], str], beside: Beside
    ) -> None:
        self._spark = spark
        self._database = database
        self._path = path
        self._beside = beside
        self._begun = False
        # Of tables that are being entered beside other work.
        self._pending: list[Future[None]] | None = None

    def enter(self, table: str) -> None:
        """Enter a table, unless it is in; beside other work as long as `aside` lasts.

        Raises:
            DataError: the catalog has it elsewhere.
        """
        if self._pending is None:
            self._enter(table)
        else:
            self._pending.append(self._beside(lambda: self._enter(table)))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Tables are entered beside other work meanwhile, which has no need of it.

        Raises:
            DataError: the catalog has one elsewhere.
        """
        before, own = self._pending, list[Future[None]]()
        self._pending = own
        try:
            yield
            self.entered()
        finally:
            self._pending = before
            wait(own)

    def entered(self) -> None:
        """Wait until all tables so far are in.

        Raises:
            DataError: the catalog has one elsewhere.
        """
        for entry in self._pending or ():
            entry.result()

    def restore(self, tables: Iterable[str]) -> None:
        """Enter those of some existing tables that the catalog lacks. One that is in memory forgets
        them when its server ends."""
        self._unless_there(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
        known = {
            row["tableName"]
            for row in self._spark.sql(f"SHOW TABLES IN `{self._database}`").collect()
        }
        for table in tables:
            if table not in known:
                self._enter(table)

    def leave(self, table: str) -> None:
        """Take a table out, if it is in."""
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
        self._spark.sql(f"DROP TABLE IF EXISTS {self._name(table)}")

    def _enter(self, table: str) -> None:
        place, path = self._name(table), self._path(table)
        if not self._begun:
            self._unless_there(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
            self._begun = True
        if self._unless_there(f"CREATE TABLE {place} USING delta LOCATION '{path}'"):
            return
        found = self._spark.sql(f"DESCRIBE DETAIL {place}").collect()[0]["location"]
        if not str(found).rstrip("/").endswith(path.split("://")[-1]):
            raise DataError(
                f"Table '{table}' can't be registered: the engine's catalog has it elsewhere, at "
                f"'{found}'; set the warehouse back to where its tables are, or choose another "
                "database."
            )

    def _name(self, table: str) -> str:
        return f"`{self._database}`.`{table}`"

    def _unless_there(self, statement: str) -> bool:
        """Create something; whether it was not there."""
        try:
            self._spark.sql(statement)
        except PySparkException as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            return False
        return True
