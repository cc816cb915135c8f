"""Commit with the engine, which uses the right log store for the warehouse's location.

An append or a replacement carries its transaction in its own options. A MERGE takes it from its
session, so every merge gets a separate session.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.base.errors import ConflictError
from tidemark.engine.requests import fetch
from tidemark.store.committers.committer import (
    CompactionResult,
    Head,
    KeptFiles,
    Merge,
    VacuumResult,
    Vouches,
)
from tidemark.store.committers.compaction import SMALL_FILE_DIVISOR
from tidemark.store.conditions import Condition
from tidemark.store.refusals import history_expired, translate_refusals
from tidemark.store.rows import (
    Rows,
    arrow_schema,
    delta_schema,
    fetch_rows,
    fit_to_schema,
    frame,
    spark_schema,
)

_MISSING = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
    "Not a directory",
)
_FORGOTTEN = ("DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS", "does not exist")
_ATTEMPTS = 8


class Engine:
    """The committer that uses Spark, for the tables below a folder.

    Args:
        spark: makes the commits.
        place: the folder that holds the tables.
    """

    name: ClassVar[str] = "engine"

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark = spark
        self._place = place

    def create(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        if self.head(table) is not None:
            return False
        columns = spark_schema(delta_schema(schema))
        ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in columns.fields)
        pairs = _pairs(properties)
        try:
            with translate_refusals(f"create table '{table}' in '{self._place}'"):
                self._spark.sql(
                    f"CREATE TABLE delta.`{self._path(table)}` ({ddl}) USING delta "
                    f"COMMENT '{_quoted(comment)}' TBLPROPERTIES ({pairs})"
                )
        except ConflictError:
            # Another process created it at the same time.
            if self.head(table) is None:
                raise
            return False
        return True

    def add_columns(self, table: str, columns: pa.Schema) -> None:
        fields = spark_schema(delta_schema(columns)).fields
        ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
        with translate_refusals(f"write table '{table}'"):
            self._spark.sql(f"ALTER TABLE delta.`{self._path(table)}` ADD COLUMNS ({ddl})")

    def set_properties(self, table: str, properties: dict[str, str]) -> None:
        path, pairs = self._path(table), _pairs(properties)
        with translate_refusals(f"write table '{table}'"):
            self._spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({pairs})")

    def head(self, table: str) -> Head | None:
        place = f"delta.`{self._path(table)}`"
        try:
            detail = self._spark.sql(f"DESCRIBE DETAIL {place}").collect()[0]
            newest = self._spark.sql(f"DESCRIBE HISTORY {place} LIMIT 1").collect()[0]
        except PySparkException as error:
            if any(word in str(error) for word in _MISSING):
                return None
            raise
        if detail["id"] is None:
            return None
        return Head.from_properties(table, detail["id"], newest["version"], detail["properties"])

    def version_at(self, path: str) -> int | None:
        try:
            newest = self._spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
        except PySparkException as error:
            if any(word in str(error) for word in _MISSING):
                return None
            raise
        return int(newest[0]["version"])

    def schema(self, table: str) -> pa.Schema:
        return arrow_schema(delta_schema(self.read(table).schema))

    def max_value(self, table: str, column: str) -> int | None:
        return self.read(table).agg(F.max(column)).collect()[0][0]

    def transaction(self, table: str, app: str) -> int:
        # No SQL statement returns it, so read it from the transaction log's files.
        kind, log = "txn struct<appId: string, version: bigint>", f"{self._path(table)}/_delta_log"
        reader = self._spark.read.schema(kind)
        commits = reader.option("pathGlobFilter", "*.json").json(log)
        checkpoints = reader.option("pathGlobFilter", "*.checkpoint*.parquet").parquet(log)
        own = commits.unionByName(checkpoints).where(F.col("txn.appId") == app)
        newest = own.agg(F.max("txn.version")).collect()[0][0]
        return -1 if newest is None else int(newest)

    def known(self, table: str) -> int | None:
        return None

    def spill(self, folder: str, tables: Iterable[pa.Table]) -> DataFrame:
        path, schema = f"{folder}/part-{uuid4().hex}", None
        with translate_refusals("compute rows"):
            for table in tables:
                frame(self._spark, table).write.mode("append").parquet(path)
                schema = spark_schema(delta_schema(table.schema))
            assert schema is not None
            return self._spark.read.schema(schema).parquet(path)

    def materialize(self, folder: str, rows: DataFrame, most: int) -> Rows:
        path = f"{folder}/part-{uuid4().hex}"
        with translate_refusals("compute rows"):
            rows.write.parquet(path)
            return self._spark.read.schema(rows.schema).parquet(path)

    def at_most(self, table: str, *bounds: Condition) -> int | None:
        return None

    def append(
        self,
        table: str,
        rows: Rows,
        app: str | None,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        return self._write(table, rows, also, "append", app, version, {})

    def replace(
        self,
        table: str,
        rows: Rows,
        where: str,
        app: str,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        anew = where == "TRUE"
        options = {"overwriteSchema": "true"} if anew else {"replaceWhere": where}
        return self._write(table, rows, also, "overwrite", app, version, options)

    def merge(
        self, table: str, rows: Rows, merge: Merge, app: str | None, version: int
    ) -> int | None:
        if app is not None and self.transaction(table, app) >= version:
            return None
        source = fetch_rows(rows)
        for n in range(_ATTEMPTS):
            try:
                return self._merged(table, source, merge, app, version)
            except ConflictError:
                if n + 1 == _ATTEMPTS:
                    raise
        return None

    def merge_if(self, table: str, rows: Callable[[], Rows], merge: Merge, app: str) -> int:
        for _ in range(_ATTEMPTS):
            # The merge does not carry the transaction. Delta would skip a merge with the current
            # version, and with the next version it would skip the application's next commit.
            standing = self.transaction(table, app)
            found = rows()
            source = fetch_rows(found)
            if self.transaction(table, app) != standing:
                continue
            # Delta detects conflicting commits once the merge has begun. A commit between the check
            # above and that instant is not detected.
            with suppress(ConflictError):
                return self._merged(table, source, merge, None, 0) or 0
        raise ConflictError(
            f"Can't write table '{table}': other writers keep changing it. Try again when they "
            "have finished."
        )

    def changes(self, table: str, since: int) -> DataFrame:
        reader = self._spark.read.format("delta").option("readChangeFeed", "true")
        rows = reader.option("startingVersion", max(since, 0)).load(self._path(table))
        return rows.where(F.col("_commit_version") > since)

    def changed(self, table: str, since: int, through: int) -> pa.Table:
        rows = self.changes(table, since).where(F.col("_commit_version") <= through)
        try:
            return fetch(rows.drop("_commit_timestamp"))
        except PySparkException as error:
            if any(sign in str(error) for sign in _FORGOTTEN):
                raise history_expired(table, since + 1) from error
            raise

    def snapshot(self, table: str) -> tuple[Head, pa.Table]:
        head = self.head(table)
        while True:
            assert head is not None
            reader = self._spark.read.format("delta").option("versionAsOf", head.version)
            rows, before, head = fetch(reader.load(self._path(table))), head, self.head(table)
            if head is not None and head.life == before.life:
                return before, rows

    def select(self, rows: DataFrame, columns: Sequence[str]) -> pa.Table:
        return fetch(rows.select(*columns))

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        rows = self.read(table, *bounds)
        return fetch(rows if columns is None else rows.select(*columns))

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        found = self._spark.read.format("delta").load(self._path(table))
        for bound in bounds:
            found = found.where(bound.sql())
        return found

    def tables(self) -> list[str]:
        reader = self._spark.read.format("binaryFile").option("pathGlobFilter", "*.json")
        try:
            logs = reader.load(f"{self._place}/*/_delta_log").select("path").distinct().collect()
        except PySparkException as error:
            if any(word in str(error) for word in _MISSING):
                return []
            raise
        names = {row[0].split("/")[-3] for row in logs}
        return sorted(name for name in names if name[0] not in "._")

    def properties(self, table: str) -> dict[str, str]:
        return dict(self._detail(table)["properties"])

    def committed_at(self, table: str, version: int) -> int | None:
        rows = self._spark.sql(f"DESCRIBE HISTORY delta.`{self._path(table)}`")
        found = rows.where(F.col("version") == version).select(F.unix_micros("timestamp")).collect()
        return int(found[0][0]) if found else None

    def rows_at(self, table: str, version: int) -> Rows:
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        return reader.load(self._path(table))

    def readable(self, table: str, version: int) -> bool:
        try:
            frame(self._spark, self.rows_at(table, version)).write.format("noop").mode(
                "overwrite"
            ).save()
        except PySparkException:
            return False
        return True

    def compact(self, table: str, target: int, *, dry_run: bool = False) -> CompactionResult:
        before = int(self._detail(table)["numFiles"])
        if dry_run:
            return CompactionResult(before, before)
        own = self._own(
            {
                "spark.databricks.delta.optimize.maxFileSize": str(target),
                "spark.databricks.delta.optimize.minFileSize": str(target // SMALL_FILE_DIVISOR),
            }
        )
        with translate_refusals(f"compact table '{table}'"):
            own.sql(f"OPTIMIZE delta.`{self._path(table)}`").collect()
        return CompactionResult(before, int(self._detail(table)["numFiles"]))

    def checkpoint(self, table: str, *, forget: bool) -> None:
        """Do nothing: Delta's writer checkpoints and trims the log itself, every ten commits."""

    def shorten(self, table: str) -> bool:
        """Return False: Delta's writer itself removes the entries older than the log retention."""
        return False

    def vacuum(self, table: str, spared: KeptFiles, *, dry_run: bool = False) -> VacuumResult:
        # VACUUM has a single retention. The files of a spared version were removed by the commit
        # after it, or later.
        since = [at for v in spared.versions if (at := self.committed_at(table, v + 1)) is not None]
        bound = min([spared.removed_since, spared.written_since, *since])
        hours = math.ceil((time.time_ns() // 1000 - bound) / 3_600_000_000)
        own = self._own(
            {
                "spark.databricks.delta.retentionDurationCheck.enabled": "false",
                "spark.databricks.delta.vacuum.logging.enabled": "true",
                # The default is 10,000 tasks, however few files there are.
                "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
            }
        )
        place = f"delta.`{self._path(table)}`"
        with translate_refusals(f"vacuum table '{table}'"):
            if dry_run:
                found = own.sql(f"VACUUM {place} RETAIN {hours} HOURS DRY RUN").collect()
                return VacuumResult(len(found), 0)
            own.sql(f"VACUUM {place} RETAIN {hours} HOURS").collect()
        told = own.sql(f"DESCRIBE HISTORY {place}").where("operation = 'VACUUM START'")
        metrics = told.orderBy(F.desc("version")).collect()[0]["operationMetrics"]
        return VacuumResult(int(metrics["numFilesToDelete"]), int(metrics["sizeOfDataToDelete"]))

    def _detail(self, table: str) -> Row:
        return self._spark.sql(f"DESCRIBE DETAIL delta.`{self._path(table)}`").collect()[0]

    def _own(self, settings: dict[str, str]) -> SparkSession:
        """Return a new session with its own settings."""
        own: SparkSession = cast(Any, self._spark).cloneSession()
        for key, value in settings.items():
            own.conf.set(key, value)
        return own

    def _merged(
        self, table: str, rows: pa.Table, merge: Merge, app: str | None, version: int
    ) -> int | None:
        """Merge once, without retries."""
        view = f"merge_{uuid4().hex}"
        # A separate session, so that no other merge uses its transaction.
        own = self._own({})
        frame(own, rows).createTempView(view)
        if app is not None:
            own.conf.set("spark.databricks.delta.write.txnAppId", app)
            own.conf.set("spark.databricks.delta.write.txnVersion", str(version))
        same = merge.matching().format(same="<=>")
        sets = "*" if merge.only is None else ", ".join(f"{k} = {v}" for k, v in merge.only.items())
        clauses = [
            *([f"WHEN MATCHED AND {merge.delete} THEN DELETE"] if merge.delete else []),
            *([f"WHEN MATCHED AND {merge.update} THEN UPDATE SET {sets}"] if merge.update else []),
            *(
                [f"WHEN NOT MATCHED AND {merge.insert} THEN INSERT *"]
                if merge.insert is not None
                else []
            ),
        ]
        into = f"MERGE INTO delta.`{self._path(table)}` t USING {view} s ON {same}"
        with translate_refusals(f"write table '{table}'"):
            done = own.sql(" ".join([into, *clauses])).collect()
        return int(done[0]["num_affected_rows"]) if done else None

    def _write(
        self,
        table: str,
        rows: Rows,
        also: pa.Table | None,
        mode: str,
        app: str | None,
        version: int,
        options: dict[str, str],
    ) -> int | None:
        anew = "overwriteSchema" in options
        schema = delta_schema(rows.schema if anew else self.read(table).schema)
        ready = frame(self._spark, fit_to_schema(rows, schema, table))
        if also is not None:
            ready = ready.unionByName(frame(self._spark, also))
        seen = Observation()
        ready = ready.observe(seen, F.count(F.lit(1)).alias("rows"))
        if app is not None:
            options = options | {"txnAppId": app, "txnVersion": str(version)}
        with translate_refusals(f"write table '{table}'"):
            ready.write.format("delta").mode(mode).options(**options).save(self._path(table))
        # A write that Delta skipped has not observed anything.
        found = seen.get
        return int(found["rows"]) if found else None

    def _path(self, table: str) -> str:
        return f"{self._place}/{table}"


def _pairs(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{_quoted(value)}'" for name, value in properties.items())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
