"""Commit with delta-rs, from memory or with files that the engine's workers have written.

A commit takes about 10 ms and does not depend on a Spark session. delta-rs does not ensure that a
transaction takes effect exactly once: it also accepts a transaction version that is not higher than
the last one. So this module opens the table, checks the application's last version, and commits
*with that same object*. Another commit of the same application in between then causes a conflict.
"""

import random
import re
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.base import thresholds
from tidemark.base.errors import ConflictError
from tidemark.engine.queries.requests import fetch, fetched_schema
from tidemark.store.commits.conditions import Condition
from tidemark.store.committers import conditional, durable, file_list
from tidemark.store.committers.compaction import compact_files
from tidemark.store.committers.file_systems import file_system, local_folder
from tidemark.store.committers.leftovers import shorten_log, trim_log, vacuum, written_at
from tidemark.store.committers.log_entry import version_id
from tidemark.store.committers.merging import for_datafusion, merge_rows
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.committers.staged import Staged, spill, stage
from tidemark.store.committers.values import (
    CompactionResult,
    Head,
    KeptFiles,
    Merge,
    VacuumResult,
    Vouches,
)
from tidemark.store.epoch import Epoch, ErasedMeanwhileError
from tidemark.store.refusals import busy_error, history_expired_error, translate_refusals
from tidemark.store.rows import (
    Rows,
    arrow_schema,
    delta_schema,
    fetch_rows,
    fit_to_schema,
    frame,
    spark_schema,
)

_ATTEMPTS = 20
_COMPACT_ATTEMPTS = 4
_OWN = {
    # Opening a table reads the commits since the last checkpoint.
    "delta.checkpointInterval": "25",
    # Only maintenance knows which commits readers still need.
    "delta.enableExpiredLogCleanup": "false",
    # Opening a table lists its transaction log.
    "delta.logRetentionDuration": "interval 7 days",
}
_OWN_IN_STORE = {
    # Each commit after the checkpoint is a request of its own.
    "delta.checkpointInterval": "10",
}
_T = TypeVar("_T")


class Committer:
    """Access to the Delta tables below a folder, by name.

    A commit that names an application and a version takes effect once, however often it is
    repeated: it is skipped if the table has that version of the application, or a later one.

    Args:
        spark: writes and reads rows that do not fit in memory.
        place: the folder or bucket that holds the tables. The object store's client takes its other
            settings, such as `AWS_ENDPOINT_URL`, from the environment.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        conditional.check_allowed(place)
        self.spark = spark
        self._place = place
        self._tables = OpenTables(place)
        self._materialized = WeakKeyDictionary[DataFrame, Staged]()

    def path(self, table: str) -> str:
        return self._tables.path(table)

    def close_replaced_tables(self) -> bool:
        """Close the tables that were restored, recreated or dropped since this thread opened them.

        Return whether there was one.
        """
        return self._tables.close_replaced_tables()

    def pin(self, table: str) -> AbstractContextManager[None]:
        """Let all accesses to a table in the block use the same version of the table.

        A commit of the block adds its version. If another commit came first, it fails, and the next
        access finds that commit.
        """
        return self._tables.pin(table)

    def create_table(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        """Create a table. Return False if it exists already."""
        with translate_refusals(f"create table '{table}' in '{self._place}'"):
            if local_folder(self._place) is None and not self.tables():
                conditional.prove(self._place)
            try:
                with self._tables.create(table) as path:
                    DeltaTable.create(
                        path,
                        delta_schema(schema),
                        mode="error",
                        description=comment or None,
                        configuration=self._own_properties() | properties,
                        raise_if_key_not_exists=False,
                        commit_properties=conditional.FIRST_COMMIT,
                    )
            except (DeltaError, CommitFailedError, ConflictError):
                # Another process may have created the table at the same time.
                if self.head(table) is None:
                    raise
                return False
        return True

    def _own_properties(self) -> dict[str, str]:
        return _OWN if local_folder(self._place) is not None else _OWN | _OWN_IN_STORE

    def add_columns(self, table: str, schema: pa.Schema) -> None:
        """Add the columns of `schema` that a table lacks; they are null in its existing rows."""
        existing = set(self.schema(table).names)
        columns = pa.schema([field for field in schema if field.name not in existing])
        if not columns:
            return
        with self._write(table) as opened:
            opened.alter.add_columns(delta_schema(columns).fields)

    def set_properties(self, table: str, properties: dict[str, str]) -> None:
        with self._write(table) as opened:
            opened.alter.set_table_properties(properties, raise_if_not_exists=False)

    def head(self, table: str) -> Head | None:
        """Return a table's identity, newest version and properties; None without a table."""
        try:
            opened = self._tables.newest(table)
        except TableNotFoundError:
            return None
        except OSError as error:
            if "Not a directory" in str(error):
                return None
            raise
        return _head(table, opened)

    def version_at(self, path: str) -> int | None:
        """Return the newest version of the Delta table at any path; None without a table."""
        try:
            return DeltaTable(path).version()
        except TableNotFoundError:
            return None

    def schema(self, table: str) -> pa.Schema:
        return arrow_schema(self._newest(table).schema())

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest value of a column of whole numbers; None if it has no value."""
        return file_list.max_value(self._newest(table), column)

    def transaction(self, table: str, app: str) -> int:
        """Return an application's newest version in a table; -1 before its first commit."""
        version = self._tables.newest(table).transaction_version(app)
        return -1 if version is None else version

    def identity(self, table: str) -> Hashable:
        """Return a value that identifies the newest version of a table in this process.

        It differs from that of any other version, also from that of a version with the same number
        in another history of the table.
        """
        self._tables.newest(table)
        return self._tables.identity(table)

    def find_identity(self, table: str) -> Hashable:
        """Return the `identity` of the newest version of a table that this thread has seen.

        The table is not accessed.
        """
        return self._tables.identity(table)

    def find_opened(self, table: str) -> DeltaTable | None:
        """Return a table at the newest version that this thread has seen; None if none.

        The table is not accessed.
        """
        return self._tables.find_opened(table)

    def spill(self, tables: Iterable[pa.Table], folder: str) -> DataFrame:
        """Write Arrow tables into `folder`, next to the Delta tables. Return their rows.

        Args:
            tables: one or more, with the same columns.
        """
        with translate_refusals("compute rows"):
            place, schema = spill(tables, self.path(folder))
            return self.spark.read.schema(spark_schema(delta_schema(schema))).parquet(place)

    def materialize(self, rows: DataFrame, folder: str, most: int) -> Rows:
        """Let the engine compute rows, once and in full, and write them into files.

        At most `most` rows are returned in memory. More rows are returned as a DataFrame that reads
        the files; a commit of this DataFrame reuses them.

        Args:
            folder: the folder for the files, next to the Delta tables.
        """
        with translate_refusals("compute rows"):
            files, schema = stage(rows, self.path(folder)), rows.schema
        if files.rows <= most:
            return files.reader(fetched_schema(schema)).read_all()
        found = self.spark.read.schema(schema).parquet(files.folder)
        self._materialized[found] = files
        return found

    def at_most(self, table: str, *bounds: Condition) -> int:
        """Return an upper bound of the number of rows that satisfy all conditions."""
        return file_list.at_most(self._newest(table), bounds)

    def append(
        self,
        rows: Rows,
        table: str,
        app: str | None = None,
        version: int = 0,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Append rows, once for each (app, version). Return the number of rows.

        Return None if the table already has this version of the application, or a later one.
        Without an application, every call appends.

        Args:
            also: a few additional rows with the table's columns.
            vouches: the versions of other tables that the commit vouches for (`store.integrity`).
            epoch: the epoch in which the caller has read its data. If an erasure has fenced the
                table since, `ErasedMeanwhileError` is raised.
        """

        def write(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(ready, Staged):
                ready.commit(opened, "append", properties)
                return ready.rows
            write_deltalake(opened, ready, mode="append", commit_properties=properties)
            return ready.num_rows

        with self._pinned_for(rows, table):
            ready = self._ready(table, rows, also)
            return self._commit_once(table, app, version, write, vouches=vouches, epoch=epoch)

    def replace(
        self,
        rows: Rows,
        table: str,
        where: str,
        app: str,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Replace the rows for which the SQL condition `where` is true. Otherwise like `append`.

        If `where` is the text `TRUE`, the table takes over the columns of the new rows.
        """
        everything = where == "TRUE"

        def write(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(ready, Staged) and everything:
                ready.commit(opened, "overwrite", properties, delta_schema(rows.schema))
                return ready.rows
            write_deltalake(
                opened,
                ready.reader(arrow_schema(opened.schema())) if isinstance(ready, Staged) else ready,
                mode="overwrite",
                schema_mode="overwrite" if everything else None,
                predicate=None if everything else for_datafusion(where),
                commit_properties=properties,
            )
            return ready.rows if isinstance(ready, Staged) else ready.num_rows

        with self._pinned_for(rows, table):
            ready = self._ready(table, rows, also, replace_all=everything)
            return self._commit_once(
                table,
                app,
                version,
                write,
                upon=everything,
                reads_rows=not everything,
                vouches=vouches,
                epoch=epoch,
            )

    def merge(
        self,
        rows: Rows,
        table: str,
        merge: Merge,
        app: str | None = None,
        version: int = 0,
        *,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Merge rows into a table, and return the number of rows inserted, updated or deleted.

        Otherwise like `append`.
        """
        source = fetch_rows(rows)
        return self._commit_once(
            table,
            app,
            version,
            lambda opened, properties: merge_rows(opened, source, merge, properties),
            reads_rows=True,
            vouches=vouches,
            epoch=epoch,
        )

    def merge_if(
        self, rows: Callable[[], Rows], table: str, merge: Merge, app: str, epoch: Epoch
    ) -> int:
        """Merge the result of `rows` into a table. Return the number of rows written.

        The table is opened first, and then `rows` is called. If another commit conflicts with the
        merge, `rows` is called again. Any commit of the application `app` in between conflicts.
        """
        for n in range(_ATTEMPTS):
            # Open a separate object: the call of `rows` may update the shared one.
            opened = self._tables.reopen(table)
            # This transaction makes any other commit of the application in between a conflict.
            newest = opened.transaction_version(app)
            recorded = {} if newest is None else {app: newest}
            recorded |= epoch.demand(table, opened)
            transactions = [Transaction(*each) for each in recorded.items()]
            found = rows()
            source = fetch_rows(found)
            try:
                with translate_refusals(f"write table '{table}'"):
                    properties = CommitProperties(app_transactions=transactions)
                    written_rows = merge_rows(opened, source, merge, properties)
                    self._sync(table, opened)
                    return written_rows
            except ConflictError:
                _wait(n)
        raise busy_error(table)

    def changes(self, table: str, since: int) -> DataFrame:
        """Return the change data feed of the commits after `since`.

        The table must have been created with `feed`.
        """
        return frame(self.spark, file_list.changes(self._with_changes(table), since))

    def read_changes(self, table: str, since: int, through: int) -> pa.Table:
        """Return the changes of the commits (since, through] in memory.

        Raises:
            HistoryExpiredError: the table does not have the changes any more.
        """
        if since < through and self.committed_at(table, since + 1) is None:
            raise history_expired_error(table, since + 1)
        try:
            return file_list.changes(self._with_changes(table), since, through)
        except (DeltaError, OSError, pa.ArrowException) as error:
            if re.search("not found|No such file", str(error), re.IGNORECASE):
                raise history_expired_error(table, since + 1) from error
            raise

    def snapshot(self, table: str) -> tuple[Head, pa.Table]:
        """Return a table's head, and all rows of the version in that head."""
        opened = self._newest(table)
        return _head(table, opened), file_list.load(opened, ())

    def select(self, rows: Rows, *columns: str) -> pa.Table:
        """Return the given columns of rows, in memory.

        If `materialize` wrote the rows into files, they are read without the engine.
        """
        if not isinstance(rows, DataFrame):
            return rows.select(list(columns))
        files = self._materialized.get(rows)
        if files is None:
            return fetch(rows.select(*columns))
        schema = fetched_schema(rows.schema)
        return files.reader(pa.schema([schema.field(c) for c in columns])).read_all()

    def count(self, rows: Rows) -> int:
        """Return the number of rows, which must be windows: only their column `events` is read."""
        return self.select(rows, "events").num_rows

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the current rows that satisfy all conditions, in memory.

        Args:
            columns: the columns to return; all by default.
        """
        return file_list.load(self._newest(table), bounds, columns)

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        """Return the current rows that satisfy all conditions, as a DataFrame."""
        return file_list.frame_of(self.spark, self.path(table), self._newest(table), bounds)

    def tables(self) -> list[str]:
        """Return the names of the Delta tables that exist."""
        system, folder = file_system(self._place)
        entries = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        names = sorted(i.base_name for i in entries if i.type == pafs.FileType.Directory)
        return [name for name in names if name[0] not in "._" and self._tables.exists(name)]

    def properties(self, table: str) -> dict[str, str]:
        found = self._tables.newest(table).metadata().configuration
        return {name: value or "" for name, value in found.items()}

    def committed_at(self, table: str, version: int) -> int | None:
        """Return when a version was committed, in microseconds; None if the log lacks it."""
        system, folder = file_system(self.path(table))
        info = system.get_file_info(f"{folder}/_delta_log/{version:020}.json")
        return None if info.type == pafs.FileType.NotFound else written_at(info)

    def version_id(self, table: str, version: int) -> str | None:
        """Return the identity of a version (`log_entry`); None if the log lacks its entry."""
        return version_id(self.path(table), version)

    def rows_at(self, table: str, version: int) -> Rows:
        """Return the rows of a version of a table; in memory if they are known to be few."""
        then = self._tables.open_version(table, version)
        if file_list.at_most(then, ()) <= thresholds.SMALL_BATCH_ROWS:
            return file_list.load(then, ())
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        return reader.load(self.path(table))

    def readable(self, table: str, version: int) -> bool:
        """Return whether a version can be read: its log entries and all of its files exist."""
        try:
            then = self._tables.open_version(table, version)
        except DeltaError:
            return False
        system, folder = file_system(self.path(table))
        paths = pa.table(then.get_add_actions(flatten=True))["path"].to_pylist()
        infos = system.get_file_info([f"{folder}/{path}" for path in paths])
        return all(info.type == pafs.FileType.File for info in infos)

    def compact(self, table: str, target: int, *, dry_run: bool = False) -> CompactionResult:
        """Rewrite small files into files of about `target` bytes; large files stay as they are.

        With `dry_run`, only count the files before and after.

        Raises:
            ConflictError: other writers kept changing the table; nothing was changed.
        """
        for n in range(_COMPACT_ATTEMPTS):
            try:
                with self._write(table) as opened:
                    return compact_files(opened, target, dry_run=dry_run)
            except ConflictError:
                _wait(n)
        raise ConflictError(
            f"Table '{table}' is busy: its compaction is postponed to the next maintenance."
        )

    def checkpoint(self, table: str, *, forget: bool) -> None:
        """Write a checkpoint of the transaction log. With `forget`, remove expired log entries."""
        with translate_refusals(f"write table '{table}'"):
            opened = self._tables.reopen(table)
            opened.create_checkpoint()
            durable.sync_log(self.path(table))
            if forget:
                opened.cleanup_metadata()

    def trim_log(self, table: str) -> None:
        """Reduce the transaction log to the newest version."""
        with translate_refusals(f"write table '{table}'"):
            opened = self._tables.reopen(table)
            opened.create_checkpoint()
            # Remove the old entries only after the checkpoint is on the disk.
            durable.sync_log(self.path(table))
            trim_log(opened)
        self._tables.forget(table)

    def shorten_log(self, table: str, since: int, keep: int | None = None) -> None:
        """Remove the entries of the transaction log that a reader of recent versions ignores.

        Args:
            since, keep: as for `leftovers.shorten_log`.
        """
        with translate_refusals(f"write table '{table}'"):
            shorten_log(self._tables.newest(table), since, keep)

    def vacuum(self, table: str, spared: KeptFiles, *, dry_run: bool = False) -> VacuumResult:
        """Remove the files that neither the table nor `spared` needs.

        With `dry_run`, only count them.
        """
        with translate_refusals(f"vacuum table '{table}'"):
            return vacuum(
                self._tables.reopen(table),
                spared,
                lambda number: self._tables.open_version(table, number),
                dry_run=dry_run,
            )

    def _newest(self, table: str) -> DeltaTable:
        return self._tables.newest(table)

    def _with_changes(self, table: str) -> DeltaTable:
        """Return a table through which delta-rs can read the change data feed."""
        is_local = local_folder(self._place) is not None
        return self._newest(table) if is_local else self._tables.reopen(table)

    def _pinned_for(self, rows: Rows, table: str) -> AbstractContextManager[None]:
        """Pin a table while rows in memory are committed to it.

        Rows that the engine computes take longer, so other commits are likely in the meantime.
        """
        return nullcontext() if isinstance(rows, DataFrame) else self.pin(table)

    def _ready(
        self, table: str, rows: Rows, also: pa.Table | None, *, replace_all: bool = False
    ) -> pa.Table | Staged:
        """Return rows that can be committed: a table in memory, or staged files for a DataFrame.

        Args:
            also: further rows to commit with them, in memory; None for none.
            replace_all: true if the rows replace all rows of the table, which then takes over their
                columns.
        """
        target_schema = (
            delta_schema(rows.schema) if replace_all else self._tables.newest(table).schema()
        )
        ready = fit_to_schema(rows, target_schema, table)
        if isinstance(ready, pa.Table):
            return ready if also is None else pa.concat_tables([ready, also])
        path, materialized = self.path(table), self._materialized.get(cast(DataFrame, rows))
        with translate_refusals(f"write table '{table}'"):
            staged = stage(ready, path) if materialized is None else materialized.within(path)
            return staged if also is None else staged.with_rows(also)

    def _commit_once(
        self,
        table: str,
        app: str | None,
        version: int,
        write: Callable[[DeltaTable, CommitProperties], _T],
        *,
        upon: bool = False,
        reads_rows: bool = False,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> _T | None:
        """Call `write`, and return its result. After a conflict with another commit, call it again.

        Return None without a call if the table has this version of the application, or a later one.

        Args:
            upon: true if any commit that comes first is a conflict; false if only an incompatible
                one is.
            reads_rows: true if `write` reads the rows of the table.
        """
        for n in range(_ATTEMPTS):
            try:
                with translate_refusals(f"write table '{table}'"):
                    opened = self._tables.newest(table)
                    done = None if app is None else opened.transaction_version(app)
                    if done is not None and done >= version:
                        return None
                    named = {} if app is None else {app: version}
                    fenced = {} if epoch is None else epoch.demand(table, opened)
                    recorded = {**named, **(vouches or {}), **fenced}
                    transactions = [Transaction(*each) for each in recorded.items()]
                    properties = CommitProperties(None, 0 if upon else None, transactions or None)
                    with self._tables.commit(table, opened, reads_rows=reads_rows) as committed:
                        written_rows = write(committed, properties)
            except ErasedMeanwhileError:
                raise
            except ConflictError:
                _wait(n)
                continue
            self._compact_if_due(table, committed.version())
            return written_rows
        raise busy_error(table)

    @contextmanager
    def _write(self, table: str) -> Iterator[DeltaTable]:
        """Yield the newest version of a table, for one commit of the block."""
        with (
            translate_refusals(f"write table '{table}'"),
            self._tables.commit(table, self._tables.base_of_commit(table)) as opened,
        ):
            yield opened

    def _compact_if_due(self, table: str, version: int) -> None:
        """Compact small files every `COMPACTION_COMMITS` commits: readers then open fewer files."""
        if version % thresholds.COMPACTION_COMMITS:
            return
        # The commit is done even if the compaction fails. `maintain` reports the error.
        with suppress(Exception), self._write(table) as opened:
            compact_files(opened, thresholds.INTERIM_FILE_BYTES, most=thresholds.COMPACTION_FILES)

    def _sync(self, table: str, opened: DeltaTable) -> None:
        durable.sync_commit(self.path(table), opened)


def _head(table: str, opened: DeltaTable) -> Head:
    found = opened.metadata()
    return Head.from_properties(table, str(found.id), opened.version(), found.configuration)


def _wait(attempt: int) -> None:
    time.sleep(random.uniform(0, 0.05 * min(2**attempt, 20)))
