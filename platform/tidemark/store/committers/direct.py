"""Commits by delta-rs: from memory, or of files that the engine's workers have written.

A commit takes a hundredth of a second, and the table is named by nobody's session. Exactly once is
the writer's business here: delta-rs neither skips nor refuses a transaction's version that is not
higher than the last. So a commit opens the table, looks at the version of its application, and
commits *from that same object*: then a commit of the same application that came in between is
refused.
"""

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.engine.requests import as_fetched, fetch
from tidemark.store.committers.committer import Folded, Freed, Head, Merge, Spared
from tidemark.store.committers.folding import fold
from tidemark.store.committers.leftovers import vacuum, written
from tidemark.store.committers.opened import OpenTables
from tidemark.store.committers.staged import Staged, file_system, stage
from tidemark.store.conditions import Within
from tidemark.store.refusals import translated
from tidemark.store.rows import SENT, Rows, arrow_schema, delta_schema, fitted, frame, spark_schema

_ATTEMPTS = 20
_FOLD_ATTEMPTS = 4
_MANY_FILES = 400
"""Files up to which the engine is given their names, and need not read the table's log."""
_OWN = {
    # Opening a table reads the commits since the last checkpoint.
    "delta.checkpointInterval": "25",
    # What the log may forget depends on who reads the table: maintenance knows.
    "delta.enableExpiredLogCleanup": "false",
    # Whoever opens a table lists its log.
    "delta.logRetentionDuration": "interval 7 days",
}
_CHANGE = pa.schema({"_change_type": pa.string(), "_commit_version": pa.int64()})
"""What a change feed tells of each row."""
_FOLD_EVERY, _FOLD_FILES, _FOLD_TARGET = 50, 50, 16 << 20
"""After so many commits, more small files than these are folded in passing, to about this size."""
_INSTANT = re.compile(r"timestamp_micros\((-?\d+)\)")
T = TypeVar("T")
_File = Mapping[str, Any]
"""A file as the table's log lists it, with its statistics."""


class Direct:
    """Commits to the tables below a folder.

    Args:
        spark: writes and reads what is too much for memory.
        place: the folder or bucket that holds the tables.
        storage: options of the object store's client; the environment has the usual ones.
    """

    name: ClassVar[str] = "direct"

    def __init__(
        self, spark: SparkSession, place: str, storage: dict[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._place = place
        self._storage = storage
        self._tables = OpenTables(place, storage)
        self._asides = WeakKeyDictionary[DataFrame, Staged]()

    def create(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        with translated(f"create table '{table}' in '{self._place}'"):
            try:
                DeltaTable.create(
                    self._tables.path(table),
                    delta_schema(schema),
                    mode="error",
                    description=comment or None,
                    configuration=_OWN | properties,
                    storage_options=self._storage,
                    raise_if_key_not_exists=False,
                )
            except (DeltaError, CommitFailedError):
                # Another process created it at the same time, which is as good.
                if self.head(table) is None:
                    raise
                return False
        return True

    def head(self, table: str) -> Head | None:
        try:
            opened = self._tables.now(table)
        except TableNotFoundError:
            return None
        except OSError as error:
            if "Not a directory" in str(error):
                return None
            raise
        found = opened.metadata()
        said = found.configuration
        form = int(said.get("tidemark.format", 0))
        return Head(str(found.id), opened.version(), form, said.get("tidemark.committer"))

    def version_at(self, path: str) -> int | None:
        try:
            return DeltaTable(path, storage_options=self._storage).version()
        except TableNotFoundError:
            return None

    def schema(self, table: str) -> pa.Schema:
        return arrow_schema(self._tables.now(table).schema())

    def greatest(self, table: str, column: str) -> int | None:
        opened = self._tables.now(table)
        files = self._files(opened, ())
        told = [file.get(f"max.{column}") for file in files]
        silent = [f for f, most in zip(files, told, strict=True) if most is None]
        empty = all(f.get(f"null_count.{column}") == f["num_records"] for f in silent)
        if not empty:
            told = self._load(opened, files, ())[column].to_pylist()
        return max((most for most in told if most is not None), default=None)

    def transaction(self, table: str, app: str) -> int:
        version = self._tables.now(table).transaction_version(app)
        return -1 if version is None else version

    def aside(self, folder: str, rows: DataFrame, most: int) -> Rows:
        with translated("compute rows"):
            files, schema = stage(rows, folder), rows.schema
        if files.rows <= most:
            return files.reader(as_fetched(schema)).read_all()
        found = self._spark.read.schema(schema).parquet(files.folder)
        self._asides[found] = files
        return found

    def at_most(self, table: str, *bounds: Within) -> int | None:
        return sum(file["num_records"] for file in self._files(self._tables.now(table), bounds))

    def append(
        self,
        table: str,
        rows: Rows,
        app: str | None,
        version: int,
        *,
        also: pa.Table | None = None,
    ) -> int | None:
        ready = self._ready(table, rows, also)

        def write(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(ready, Staged):
                ready.commit(opened, "append", properties)
                return ready.rows
            write_deltalake(opened, ready, mode="append", commit_properties=properties)
            return ready.num_rows

        return self._committed(table, app, version, write)

    def replace(
        self,
        table: str,
        rows: Rows,
        where: str,
        app: str,
        version: int,
        *,
        also: pa.Table | None = None,
    ) -> int | None:
        ready = self._ready(table, rows, also)

        def write(opened: DeltaTable, properties: CommitProperties) -> int:
            everything = where == "TRUE"
            if isinstance(ready, Staged) and everything:
                ready.commit(opened, "overwrite", properties)
                return ready.rows
            write_deltalake(
                opened,
                ready.reader(arrow_schema(opened.schema())) if isinstance(ready, Staged) else ready,
                mode="overwrite",
                predicate=None if everything else _for_datafusion(where),
                commit_properties=properties,
            )
            return ready.rows if isinstance(ready, Staged) else ready.num_rows

        return self._committed(table, app, version, write, upon=where == "TRUE")

    def merge(
        self, table: str, rows: Rows, merge: Merge, app: str | None, version: int
    ) -> int | None:
        source = rows if isinstance(rows, pa.Table) else fetch(rows)
        return self._committed(
            table,
            app,
            version,
            lambda opened, properties: _merged(opened, source, merge, properties),
        )

    def merge_if(self, table: str, rows: Callable[[], Rows], merge: Merge, app: str) -> int:
        for n in range(_ATTEMPTS):
            # Afresh: reading the rows may look at the table again.
            opened = self._tables.afresh(table)
            # Its version as it stands: another commit of the application makes this one fail.
            standing = opened.transaction_version(app)
            transactions = None if standing is None else [Transaction(app, standing)]
            found = rows()
            source = found if isinstance(found, pa.Table) else fetch(found)
            try:
                with translated(f"write table '{table}'"):
                    properties = CommitProperties(app_transactions=transactions)
                    return _merged(opened, source, merge, properties)
            except ConflictError:
                _wait(n)
        raise ConflictError(f"Can't write table '{table}': others keep changing it.")

    def changes(self, table: str, since: int) -> DataFrame:
        opened = self._tables.now(table)
        columns = arrow_schema(opened.schema())
        schema = pa.schema([*columns, *_CHANGE])
        if opened.version() <= since:
            return frame(self._spark, schema.empty_table())
        # Its reader is of another Arrow library.
        feed: Any = opened.load_cdf(since + 1)
        rows = pa.RecordBatchReader.from_stream(feed).read_all()
        return frame(self._spark, rows.select(schema.names).cast(schema))

    def pick(self, rows: DataFrame, columns: Sequence[str]) -> pa.Table:
        files = self._asides.get(rows)
        if files is None:
            return fetch(rows.select(*columns))
        schema = as_fetched(rows.schema)
        return files.reader(pa.schema([schema.field(c) for c in columns])).read_all()

    def take(self, table: str, *bounds: Within, columns: Sequence[str] | None = None) -> pa.Table:
        opened = self._tables.now(table)
        files = self._files(opened, bounds)
        return self._load(opened, files, bounds, columns)

    def read(self, table: str, *bounds: Within) -> DataFrame:
        opened = self._tables.now(table)
        files = self._files(opened, bounds)
        if sum(file["num_records"] for file in files) <= SENT:
            return frame(self._spark, self._load(opened, files, bounds))
        if len(files) > _MANY_FILES:
            found = self._spark.read.format("delta").load(self._tables.path(table))
        else:
            paths = [f"{self._tables.path(table)}/{file['path']}" for file in files]
            schema = spark_schema(opened.schema())
            found = self._spark.read.schema(schema).parquet(*paths)
        for bound in bounds:
            # Each condition with other numbers is compiled anew, which takes longer than to read
            # the arrivals of a run.
            if not all(bound.holds(file) for file in files):
                found = found.where(bound.sql())
        return found

    def tables(self) -> list[str]:
        system, folder = file_system(self._place)
        there = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        names = sorted(i.base_name for i in there if i.type == pafs.FileType.Directory)
        return [
            n for n in names if n[0] not in "._" and DeltaTable.is_deltatable(self._tables.path(n))
        ]

    def properties(self, table: str) -> dict[str, str]:
        found = self._tables.now(table).metadata().configuration
        return {name: value or "" for name, value in found.items()}

    def committed_at(self, table: str, version: int) -> int | None:
        system, folder = file_system(self._tables.path(table))
        info = system.get_file_info(f"{folder}/_delta_log/{version:020}.json")
        return None if info.type == pafs.FileType.NotFound else written(info)

    def compact(self, table: str, target: int, *, dry_run: bool = False) -> Folded:
        for n in range(_FOLD_ATTEMPTS):
            try:
                with translated(f"compact table '{table}'"):
                    return fold(self._tables.afresh(table), target, dry_run=dry_run)
            except ConflictError:
                _wait(n)
        raise ConflictError(f"Table '{table}' is busy: its files are folded another time.")

    def checkpoint(self, table: str, *, forget: bool) -> None:
        with translated(f"write table '{table}'"):
            opened = self._tables.afresh(table)
            opened.create_checkpoint()
            if forget:
                opened.cleanup_metadata()

    def vacuum(self, table: str, spared: Spared, *, dry_run: bool = False) -> Freed:
        with translated(f"vacuum table '{table}'"):
            return vacuum(
                self._tables.afresh(table),
                spared,
                lambda number: DeltaTable(self._tables.path(table), number, self._storage),
                dry_run=dry_run,
            )

    def _load(
        self,
        opened: DeltaTable,
        files: Sequence[_File],
        bounds: Sequence[Within],
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        schema = arrow_schema(opened.schema())
        if not files:
            return schema.empty_table().select(columns or schema.names)
        condition = pc.scalar(True)
        for bound in bounds:
            condition = condition & bound.expression()
        system, folder = file_system(opened.table_uri)
        paths = [f"{folder}/{file['path']}" for file in files]
        found = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
        return found.to_table(columns=columns and [*columns], filter=condition)

    def _files(self, opened: DeltaTable, bounds: Sequence[Within]) -> list[_File]:
        """The table's files that may hold rows within the bounds."""
        listed = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
        return [file for file in listed if all(bound.may_hold(file) for bound in bounds)]

    def _ready(self, table: str, rows: Rows, also: pa.Table | None) -> pa.Table | Staged:
        """Rows as they can be committed: their columns are the table's, and their files written."""
        ready = fitted(rows, self._tables.now(table).schema(), table)
        if isinstance(ready, pa.Table):
            return ready if also is None else pa.concat_tables([ready, also])
        path, there = self._tables.path(table), self._asides.get(cast(DataFrame, rows))
        with translated(f"write table '{table}'"):
            staged = stage(ready, path) if there is None else there.within(path)
            return staged if also is None else staged.and_also(also)

    def _committed(
        self,
        table: str,
        app: str | None,
        version: int,
        write: Callable[[DeltaTable, CommitProperties], T],
        *,
        upon: bool = False,
    ) -> T | None:
        """What `write` gives, which is tried anew where another commit came first; None where the
        table has this version of the application.

        Args:
            upon: whether any other commit counts, and not just one that it can't stand beside.
        """
        for n in range(_ATTEMPTS):
            opened = self._tables.now(table)
            done = None if app is None else opened.transaction_version(app)
            if done is not None and done >= version:
                return None
            transactions = None if app is None else [Transaction(app, version)]
            properties = CommitProperties(None, 0 if upon else None, transactions)
            try:
                with translated(f"write table '{table}'"):
                    written_rows = write(opened, properties)
            except ConflictError:
                self._tables.forget(table)
                _wait(n)
                continue
            except BaseException:
                self._tables.forget(table)
                raise
            self._fold_in_passing(table, opened.version())
            return written_rows
        raise ConflictError(f"Can't write table '{table}': others keep changing it.")

    def _fold_in_passing(self, table: str, version: int) -> None:
        """Now and then, write many small files as few: what a reader opens stays little."""
        if version % _FOLD_EVERY:
            return
        # What was committed stands, whatever becomes of this; `maintain` tells what is wrong.
        with suppress(TidemarkError, DeltaError, OSError, pa.ArrowException):
            fold(self._tables.afresh(table), _FOLD_TARGET, most=_FOLD_FILES)


def _merged(
    opened: DeltaTable, source: pa.Table, merge: Merge, properties: CommitProperties
) -> int:
    values = {f'"{name}"': f's."{name}"' for name in arrow_schema(opened.schema()).names}
    work = opened.merge(
        source=source,
        predicate=_for_datafusion(merge.matching().format(same="IS NOT DISTINCT FROM")),
        source_alias="s",
        target_alias="t",
        # What is merged is in memory: its least and greatest values pass over files.
        streamed_exec=False,
        commit_properties=properties,
    )
    if merge.delete is not None:
        work = work.when_matched_delete(merge.delete)
    if merge.update is not None:
        work = work.when_matched_update(merge.only or values, _unless_true(merge.update))
    if merge.insert is not None:
        work = work.when_not_matched_insert(values, _unless_true(merge.insert))
    done: dict[str, Any] = work.execute()
    return sum(int(done[f"num_target_rows_{kind}"]) for kind in ("inserted", "updated", "deleted"))


def _wait(attempt: int) -> None:
    time.sleep(random.uniform(0, 0.05 * min(2**attempt, 20)))


def _for_datafusion(condition: str) -> str:
    """A condition of the engine's SQL, in the words of the library that merges for delta-rs."""
    typed = "arrow_cast(\\1, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    return _INSTANT.sub(typed, condition).replace("`", '"')


def _unless_true(condition: str) -> str | None:
    return None if condition == "TRUE" else condition
