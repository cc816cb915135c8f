"""Read the tables of one database in this process, without the engine.

An unchanged table is not read again, so that a process can poll all tables every second.
"""

import time
from collections.abc import Callable, Hashable, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime
from tidemark.base.settings import Settings
from tidemark.store.commits.conditions import Condition, at_least
from tidemark.store.committers import file_list, statistics
from tidemark.store.committers.file_systems import local_folder
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.rows import INSTANT, arrow_schema, compute, spark_schema, to_micros

PAUSE_FACTOR = 20
"""The pause after a read in a process that polls every second, as a multiple of the read's
duration. The process therefore uses a twentieth of a core at most.
"""

MAX_PAUSE = 60.0
"""The longest pause between two looks at an unchanged table in an object store, in seconds."""

_SETTLED = 1.0
"""Seconds after which a folder's next change gets another modification time, on any file system."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Listing:
    """The size of a table as of a commit.

    Args:
        files, size: the number of files, and their total size in bytes.
    """

    files: int
    size: int
    rows: int
    version: int


@dataclass
class _Result:
    """A result of `Tables.read_if_changed`.

    Args:
        stamps: the stamps of the tables that were read.
        until: the end of the pause, on the monotonic clock.
    """

    stamps: object
    until: float
    value: Any


@dataclass
class _Look:
    """A look at a table in an object store.

    Args:
        until: the time of the next look, on the monotonic clock.
        pause: the time between this look and the next one, in seconds.
    """

    stamp: Hashable
    until: float
    pause: float = 0.0


class Tables:
    """Reads the tables of one database, in one thread. Methods return None for a missing table.

    Args:
        pause_factor: the pause after a read, as a multiple of its duration; see `read_if_changed`.
    """

    def __init__(self, folder: str, pause_factor: float = 0) -> None:
        self.pause_factor = pause_factor
        self._root = folder
        self._open = OpenTables(self._root)
        self._results: dict[Hashable, _Result] = {}
        self._looks: dict[str, _Look] = {}
        self._last: dict[tuple[str, str], tuple[object, pa.Table]] = {}

    @classmethod
    def of_database(cls, settings: Settings, pause_factor: float = 0) -> Self:
        """Return the tables of the settings' database."""
        return cls(f"{settings.warehouse}/{settings.database}", pause_factor)

    def change_stamp(self, table: str) -> Hashable:
        """Return a value that differs whenever the table has changed."""
        if local_folder(self._root) is None:
            return self._look_at_table(table)
        try:
            log = Path(f"{local_folder(self._root)}/{table}/_delta_log").stat()
        except OSError:
            return None
        settled = time.time() - log.st_mtime >= 0 and time.time() - log.st_mtime > _SETTLED
        return (log.st_ino, log.st_mtime_ns, None if settled else time.monotonic_ns())

    def _look_at_table(self, table: str) -> Hashable:
        """Return the stamp of a table in an object store, where each look is a request.

        A process that polls looks less and less often at a table that does not change. After a
        change, it looks at all tables again, because they often change together.
        """
        looked_at = time.monotonic()
        last_look = self._looks.get(table)
        if last_look is not None and looked_at < last_look.until:
            return last_look.stamp
        stamp = self._version_identity(table, self.open_table(table))
        if last_look is None:
            self._looks[table] = _Look(stamp, looked_at)
        elif last_look.stamp != stamp:
            self._looks = {table: _Look(stamp, looked_at)}
        elif self.pause_factor:
            last_look.pause = min(max(2 * last_look.pause, 1.0), MAX_PAUSE)
            last_look.until = looked_at + last_look.pause
        return stamp

    def read_if_changed(
        self,
        key: Hashable,
        tables: Sequence[str],
        find: Callable[[], _T],
        dependency: object = None,
    ) -> _T:
        """Return the result of `find`, which reads some tables.

        Return the previous result, without a call of `find`, in two cases: neither the tables nor
        `dependency` have changed, or the pause after the previous call (`pause_factor`) is not over
        yet.

        Args:
            key: identifies the result.
            tables: the tables that `find` reads.
            dependency: another value on which the result depends.
        """
        begun = time.monotonic()
        cached = self._results.get(key)
        if cached is not None and begun < cached.until:
            return cached.value
        with ExitStack() as pins:
            for table in tables:
                pins.enter_context(self._open.pin_version(table))
            stamps = [dependency, *map(self.change_stamp, tables)]
            if cached is not None and cached.stamps == stamps:
                return cached.value
            result = find()
        ended = time.monotonic()
        self._results[key] = _Result(stamps, ended + self.pause_factor * (ended - begun), result)
        return result

    def pin_all_versions(self) -> AbstractContextManager[None]:
        """Let all reads of a `with` block use the version of each table that the first one finds.

        In an object store, a table that does not exist is then no request.
        """
        return self._open.pin_all_versions()

    def open_table(self, table: str) -> DeltaTable | None:
        """Open the newest version of a table."""
        try:
            return self._open.open_newest(table)
        except TableNotFoundError:
            return None

    def table_id(self, table: str) -> str | None:
        """Return the id of a table, which stays the same until the table is dropped."""
        opened = self.open_table(table)
        if opened is None:
            return None
        return str(opened.metadata().id)

    def history_stamp(self, table: str) -> Hashable:
        """Return a value that differs after the table was dropped, recreated, or restored from a
        copy."""
        return self.table_id(table), self._open.count_replacements(table)

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest number in a column of a table."""
        opened = self.open_table(table)
        if opened is None:
            return None
        return file_list.max_value(opened, column)

    def read_rows(
        self, table: str, bounds: Sequence[Condition], columns: Sequence[str]
    ) -> pa.Table | None:
        """Return some columns of the rows that satisfy all conditions (`TableReader`)."""
        return self.read(table, columns, bounds=bounds)

    def newest_version(self, table: str) -> int | None:
        """Return the number of a table's newest commit."""
        opened = self.open_table(table)
        if opened is None:
            return None
        return opened.version()

    def column_types(self, table: str) -> dict[str, pa.DataType]:
        """Return the types of a table's columns by their names; none if the table is missing."""
        opened = self.open_table(table)
        if opened is None:
            return {}
        return {f.name: f.type for f in arrow_schema(opened.schema())}

    def spelled_types(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns as definitions spell them; see `column_types`."""
        opened = self.open_table(table)
        fields = [] if opened is None else spark_schema(opened.schema())
        return {field.name: field.dataType.simpleString() for field in fields}

    def existing_columns(self, table: str, columns: Sequence[str]) -> list[str]:
        """Return those of some columns that a table has.

        The table of an asset lacks keys of the definition in the code if another definition made
        it.
        """
        names = self.column_types(table)
        return [column for column in columns if column in names]

    def read_listing(self, table: str) -> Listing | None:
        """Return the size of a table."""
        return self.read_if_changed((table, "listing"), [table], lambda: self._measure_table(table))

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: ds.Expression | None = None,
        bounds: Sequence[Condition] = (),
    ) -> pa.Table | None:
        """Read the rows of a table.

        Args:
            columns: the columns to read; all by default.
            bounds: further conditions, which also serve to skip files.
        """
        try:
            return self._read_cached(table, columns, where, bounds)
        except FileNotFoundError:
            # The table was recreated after it had been opened.
            self._open.close_table(table)
            return self._read_cached(table, columns, where, bounds)

    def read_new_files(
        self, table: str, columns: Sequence[str], seen: Set[str]
    ) -> tuple[pa.Table | None, Set[str]]:
        """Read the rows of the files that are not in `seen`; None without such files.

        Return the rows and the paths of all files. Once the caller has processed the rows, it
        passes these paths as `seen` to the next call. A compaction writes known rows to new files:
        the caller must recognize known rows by their numbers.
        """
        opened = self.open_table(table)
        if opened is None:
            return None, seen
        files = statistics.list_files(opened)
        fresh = [file for file in files if file["path"] not in seen]
        rows = file_list.load_files(opened, fresh, columns=columns) if fresh else None
        return rows, {file["path"] for file in files}

    def read_newest(
        self,
        table: str,
        order_column: str,
        where: ds.Expression | None,
        limit: int,
        further_columns: Sequence[str] = (),
    ) -> pa.Table | None:
        """Read the `limit` rows with the greatest values of a column, in descending order.

        The column is read first, so that only the files with these rows are read completely.

        Args:
            order_column: the column, of numbers or instants.
            further_columns: columns by which rows with equal values are sorted.
        """
        values = self.read(table, [order_column], where)
        if values is None:
            return None
        bounds = list[Condition]()
        if values.num_rows > limit:
            least = values.sort_by([(order_column, "descending")])[order_column].slice(limit - 1, 1)
            instants = pa.types.is_timestamp(least.type)
            if least.null_count == 0:
                value = to_micros(least)[0] if instants else least.to_pylist()[0]
                bounds.append(at_least(order_column, value, instants=instants))
        rows = self.read(table, None, where, bounds)
        if rows is None:
            return None
        # Arrow can't sort nested values.
        keys = {name: _to_comparable(rows[name]) for name in (order_column, *further_columns)}
        order = [(order_column, "descending"), *((name, "ascending") for name in further_columns)]
        return rows.take(compute.sort_indices(pa.table(keys), sort_keys=order)[:limit])

    def _read_cached(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: ds.Expression | None,
        bounds: Sequence[Condition],
    ) -> pa.Table | None:
        opened = self.open_table(table)
        if opened is None:
            return None
        query = (self._version_identity(table, opened), str(where), tuple(bounds))
        before, rows = self._last.get((table, str(columns)), (None, None))
        if rows is None or before != query:
            rows = file_list.load_rows(opened, bounds, columns, where)
            self._last[table, str(columns)] = query, rows
        return rows

    def _version_identity(self, table: str, opened: DeltaTable | None) -> Hashable:
        """Return the identity of the version of a table that `open` has returned."""
        if opened is None:
            return None
        return self._open.find_identity(table)

    def _measure_table(self, table: str) -> Listing | None:
        opened = self.open_table(table)
        if opened is None:
            return None
        files = pa.table(opened.get_add_actions(flatten=True))
        size = sum_column(files["size_bytes"])
        rows = sum_column(files["num_records"])
        return Listing(files.num_rows, size, rows, opened.version())


def arrow_instant(micros: int) -> "pa.TimestampScalar[Any, Any]":
    """Return an instant in microseconds as an Arrow scalar.

    An instant before BEGINNING becomes BEGINNING, and one after INFINITY becomes INFINITY.
    """
    lawful = min(max(micros, BEGINNING), INFINITY)
    return pa.scalar(as_datetime(lawful), INSTANT)


def sum_column(column: pa.ChunkedArray) -> int:
    """Return the sum of a column of integers, or the number of true values of a boolean column."""
    if len(column):
        return int(column.to_numpy().sum())
    return 0


def _to_comparable(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any] | pa.Array[Any]":
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
