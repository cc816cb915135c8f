"""Files that the engine's workers have written into a table's folder, to be committed as they are.

A file that no commit names is no part of the table: what a killed run leaves is removed by vacuum.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame

from tidemark.store.committers import statistics

_MICROS = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class File:
    """A Parquet file in a table's folder, its path relative to that; written when, milliseconds."""

    path: str
    size: int
    modified: int
    footer: pq.FileMetaData

    @classmethod
    def there(cls, system: pafs.FileSystem, folder: str, path: str) -> "File":
        """A file that has been written."""
        info = system.get_file_info(f"{folder}/{path}")
        modified = int((info.mtime or datetime.now(UTC)).timestamp() * 1000)
        return cls(path, info.size, modified, pq.read_metadata(info.path, filesystem=system))

    def added(self, *, changes: bool = True) -> AddAction:
        """The action that makes it part of the table; whether that changes the table's rows."""
        told = json.dumps(statistics.of(self.footer))
        return AddAction(self.path, self.size, {}, self.modified, changes, told)


@dataclass(frozen=True)
class Staged:
    """Parquet files that can be committed to a table once they lie in its folder.

    Args:
        table: the table's folder, or another.
        name: the folder in it that has the files.
        files: those with rows, their paths relative to `table`.
    """

    table: str
    name: str
    files: Sequence[File]

    @property
    def folder(self) -> str:
        """Where the files are."""
        return f"{self.table}/{self.name}"

    @property
    def rows(self) -> int:
        """How many rows they hold."""
        return sum(file.footer.num_rows for file in self.files)

    def within(self, table: str) -> "Staged":
        """The same files in a table's folder too; they stay where they are, for who reads them."""
        system, place = file_system(table)
        _, here = file_system(self.table)
        name = _named()
        system.create_dir(f"{place}/{name}")
        for file in self.files:
            target = f"{place}/{name}/{PurePosixPath(file.path).name}"
            if isinstance(system, pafs.LocalFileSystem):
                Path(target).hardlink_to(f"{here}/{file.path}")
            else:
                system.copy_file(f"{here}/{file.path}", target)
        moved = [replace(f, path=f"{name}/{PurePosixPath(f.path).name}") for f in self.files]
        return Staged(table, name, moved)

    def and_also(self, rows: pa.Table) -> "Staged":
        """These and a file of a few rows more."""
        system, place = file_system(self.table)
        path = f"{self.name}/also-{uuid4().hex}.parquet"
        pq.write_table(rows, f"{place}/{path}", filesystem=system)
        return replace(self, files=[*self.files, File.there(system, place, path)])

    def commit(
        self,
        opened: DeltaTable,
        mode: Literal["append", "overwrite"],
        properties: CommitProperties,
        schema: Schema | None = None,
    ) -> None:
        """Make them part of the table; with `overwrite`, all that there is of it, with the columns
        of `schema`."""
        actions: list[AddAction | RemoveAction] = [f.added() for f in self.files]
        opened.create_write_transaction(
            actions, mode, schema or opened.schema(), commit_properties=properties
        )

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """Their rows, one batch after the other, with these columns."""
        system, folder = file_system(self.table)
        paths = [f"{folder}/{file.path}" for file in self.files]
        found = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
        return found.scanner().to_reader()


def stage(rows: DataFrame, table: str) -> Staged:
    """Have the engine write rows into a folder below a table's own.

    Args:
        rows: computed here, once and in full.
        table: the table's folder, or another.
    """
    # As nanoseconds, its default, they would have no time zone.
    rows.sparkSession.conf.set(_MICROS, "TIMESTAMP_MICROS")
    name = _named()
    rows.write.parquet(f"{table}/{name}")
    system, folder = file_system(table)
    listed = system.get_file_info(pafs.FileSelector(f"{folder}/{name}"))
    found = sorted(info.base_name for info in listed if info.path.endswith(".parquet"))
    files = [File.there(system, folder, f"{name}/{each}") for each in found]
    return Staged(table, name, [file for file in files if file.footer.num_rows])


def spill(tables: Iterable[pa.Table], table: str) -> tuple[str, pa.Schema]:
    """Write rows in memory into a folder below a table's own.

    Args:
        tables: one or more, of the same columns.

    Returns:
        The folder, and the columns.
    """
    system, folder = file_system(table)
    name, rest = _named(), iter(tables)
    first = next(rest)
    system.create_dir(f"{folder}/{name}")
    with pq.ParquetWriter(f"{folder}/{name}/rows.parquet", first.schema, filesystem=system) as file:
        for part in chain([first], rest):
            file.write_table(part.cast(first.schema))
    return f"{table}/{name}", first.schema


def _named() -> str:
    return f"part-{uuid4().hex}"


def file_system(place: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or an address, and the path in it."""
    if "://" not in place:
        return pafs.LocalFileSystem(), place.rstrip("/")
    system, path = pafs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return system, path.rstrip("/")
