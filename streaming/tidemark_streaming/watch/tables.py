"""Tables as who looks at them every second reads them: what is as it was is not read again."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime
from tidemark.base.settings import Settings
from tidemark.store import rollup_generation
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.committers.staged import file_system
from tidemark.store.rows import INSTANT, arrow_schema

REST = 20
"""What took a second to read is not read again for so many: looking takes a twentieth of a core."""

_SETTLED = 1.0
"""Seconds after which a folder's time tells one change from the next, on any file system."""

T = TypeVar("T")


@dataclass(frozen=True)
class Listing:
    """What a table's log lists.

    Args:
        files, size: its files, and their bytes.
        rows: in them.
        version: the number of its newest commit.
    """

    files: int
    size: int
    rows: int
    version: int


class Tables:
    """The tables of one database, for one thread."""

    def __init__(self, settings: Settings) -> None:
        self._root = f"{settings.warehouse}/{settings.database}"
        self._open = OpenTables(self._root)
        self._kept: dict[Hashable, tuple[object, float, Any]] = {}

    def stamp(self, table: str) -> Hashable:
        """What differs whenever the table has changed; None where there is none."""
        if "://" in self._root:
            opened = self.opened(table)
            return None if opened is None else (str(opened.metadata().id), opened.version())
        try:
            log = Path(f"{self._root}/{table}/_delta_log").stat()
        except OSError:
            return None
        settled = time.time() - log.st_mtime >= 0 and time.time() - log.st_mtime > _SETTLED
        return (log.st_ino, log.st_mtime_ns, None if settled else time.monotonic_ns())

    def kept(
        self, key: Hashable, tables: Sequence[str], find: Callable[[], T], also: object = None
    ) -> T:
        """What is found of some tables: again when one of them, or what it goes by `also`, has
        changed, and when finding it has been paused for as long as `REST` says."""
        stamps, begun = [also, *map(self.stamp, tables)], time.monotonic()
        known = self._kept.get(key)
        if known is not None and (known[0] == stamps or begun < known[1]):
            return known[2]
        found = find()
        ended = time.monotonic()
        self._kept[key] = (stamps, ended + REST * (ended - begun), found)
        return found

    def opened(self, table: str) -> DeltaTable | None:
        """A table as it is now; None where there is none."""
        try:
            return self._open.newest(table)
        except TableNotFoundError:
            return None

    def life(self, table: str) -> str | None:
        """The identity that a table has until it is dropped."""
        return self.kept((table, "life"), [table], lambda: self._life(table))

    def listing(self, table: str) -> Listing | None:
        """How large a table is; None where there is none."""
        return self.kept((table, "listing"), [table], lambda: self._listing(table))

    def read(
        self, table: str, columns: Sequence[str] | None, above: tuple[str, int] | None = None
    ) -> pa.Table | None:
        """All rows, or those whose instant in a column is above one in microseconds, which leaves
        most files unread; None where there is no such table."""
        opened = self.opened(table)
        if opened is None:
            return None
        listed, chosen = pa.table(opened.get_add_actions(flatten=True)), None
        if above is not None:
            column, least = above[0], instant(above[1])
            chosen = ds.field(column) > least
            if (most := f"max.{column}") in listed.column_names:
                listed = listed.filter(ds.field(most).is_null() | (ds.field(most) > least))
        return self._rows(opened, listed, columns, chosen)

    def appended(self, table: str, columns: Sequence[str], seen: set[str]) -> pa.Table | None:
        """The rows of those files that were not seen; None where there are none.

        A compaction writes rows again that were seen in other files: who reads tells them by their
        numbers.

        Args:
            seen: the files of the last time; those of this one afterwards.
        """
        opened = self.opened(table)
        if opened is None:
            return None
        listed = pa.table(opened.get_add_actions(flatten=True))
        paths = listed["path"].to_pylist()
        fresh = [path not in seen for path in paths]
        rows = None
        if any(fresh):
            rows = self._rows(opened, listed.filter(pa.array(fresh)), columns, None)
        seen.clear()
        seen.update(paths)
        return rows

    def _rows(
        self,
        opened: DeltaTable,
        listed: pa.Table,
        columns: Sequence[str] | None,
        chosen: ds.Expression | None,
    ) -> pa.Table:
        system, folder = file_system(opened.table_uri.removeprefix("file://"))
        paths = [f"{folder}/{path}" for path in listed["path"].to_pylist()]
        schema = arrow_schema(opened.schema())
        found = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
        if columns is None:
            return found.to_table(filter=chosen)
        # A table of an earlier Tidemark lacks some until the next run widens it.
        there = [name for name in columns if name in schema.names]
        rows = found.to_table(columns=there, filter=chosen)
        for name in columns:
            if name not in there:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows

    def _life(self, table: str) -> str | None:
        opened = self.opened(table)
        if opened is None:
            return None
        found = opened.metadata()
        return rollup_generation.table_identity(str(found.id), found.configuration)

    def _listing(self, table: str) -> Listing | None:
        opened = self.opened(table)
        if opened is None:
            return None
        listed = pa.table(opened.get_add_actions(flatten=True))
        size, rows = total(listed["size_bytes"]), total(listed["num_records"])
        return Listing(listed.num_rows, size, rows, opened.version())


def instant(micros: int) -> "pa.TimestampScalar[Any, Any]":
    """An instant in microseconds as a table has it."""
    lawful = min(max(micros, BEGINNING), INFINITY)
    return pa.scalar(as_datetime(lawful), INSTANT)


def total(column: pa.ChunkedArray) -> int:
    """The sum of whole numbers, or how many are true."""
    return int(column.to_numpy().sum()) if len(column) else 0
