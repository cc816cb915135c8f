"""Register tables in the engine's catalog, so that SQL and dbt find them by name.

Tidemark itself finds tables by location and does not need the catalog.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base.errors import DataError

_RunInBackground = Callable[[Callable[[], None]], Future[None]]

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:(//)?")

_REMOVED = "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_SCHEMA"
"""Delta's error for a registration at a location without a table."""

_COMMENT = "The tables of Tidemark in "
"""The beginning of a database's comment, which the location of its tables follows."""


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

    def register_table(self, table: str) -> None:
        """Register a table if it is not registered yet.

        Within `registering_in_background`, the registration runs in a background thread.
        """
        if self._pending is None:
            self._register_now(table)
        else:
            self._pending.append(self._run_in_background(lambda: self._register_now(table)))

    @contextmanager
    def registering_in_background(self) -> Iterator[None]:
        """Register tables in background threads during a `with` block, and wait at its end.

        The work in the block must not need the catalog.
        """
        before = self._pending
        registrations = list[Future[None]]()
        self._pending = registrations
        try:
            yield
            self.wait_until_registered()
        finally:
            self._pending = before
            wait(registrations)

    def check_location(self) -> None:
        """Raise an error if the database of this name has the tables of another warehouse.

        Several projects may use one engine, and its catalog has one database of a name.
        """
        try:
            rows = self._spark.sql(f"DESCRIBE DATABASE `{self._database}`").collect()
        except PySparkException as error:
            if error.getCondition() != "SCHEMA_NOT_FOUND":
                raise
            return
        # The names of the columns differ between kinds of engines.
        comment = dict(rows).get("Comment") or ""
        location = comment.removeprefix(_COMMENT)
        if location == comment or _is_same_place(location, self._path("")):
            return
        raise DataError(
            f"The database '{self._database}' of the engine's catalog has the tables in "
            f"'{location}', not those in '{self._path('')}': set TIDEMARK_DATABASE to another "
            "name, "
            "if another project uses this engine. If you moved the warehouse, first remove the "
            f"database from the catalog with `DROP DATABASE {self._database} CASCADE`, which keeps "
            "the files of Tidemark's tables."
        )

    def _create_database(self) -> None:
        comment = _quote_literal(f"{_COMMENT}{self._path('')}")
        self._unless_there(f"CREATE DATABASE IF NOT EXISTS `{self._database}` COMMENT {comment}")

    def wait_until_registered(self) -> None:
        for entry in self._pending or ():
            entry.result()

    def register_missing_tables(self, tables: Iterable[str]) -> None:
        """Register the given existing tables that the catalog lacks.

        An in-memory catalog loses its tables when its server stops.
        """
        self._create_database()
        registered = {
            row["tableName"]
            for row in self._spark.sql(f"SHOW TABLES IN `{self._database}`").collect()
        }
        # On an engine elsewhere, each registration takes about a second.
        with self.registering_in_background():
            for table in tables:
                if table not in registered:
                    self.register_table(table)

    def unregister_table(self, table: str) -> None:
        self._create_database()
        self._spark.sql(f"DROP TABLE IF EXISTS {self._qualified_name(table)}")

    def _register_now(self, table: str) -> None:
        name = self._qualified_name(table)
        path = self._path(table)
        if not self._begun:
            self._create_database()
            self._begun = True
        statement = f"CREATE TABLE {name} USING delta LOCATION {_quote_literal(path)}"
        try:
            is_new = self._unless_there(statement)
        except PySparkException as error:
            if error.getCondition() == _REMOVED:
                # An erasure or a drop removed the table after the decision to register it.
                return
            raise
        if is_new:
            return
        location = self._spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
        if not _is_same_place(str(location), path):
            raise DataError(
                f"Table '{table}' can't be registered: the engine's catalog has it at another "
                f"location, '{location}'. Set the warehouse to the location of its tables, or "
                "choose another database."
            )

    def _qualified_name(self, table: str) -> str:
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


def _quote_literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _is_same_place(location: str, second: str) -> bool:
    """Return True if two addresses of a folder differ only in their scheme or a final slash."""
    return _strip_scheme(location) == _strip_scheme(second)


def _strip_scheme(address: str) -> str:
    scheme = _SCHEME.match(address)
    return address[scheme.end() if scheme else 0 :].rstrip("/")
