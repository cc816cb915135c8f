"""Files that the engine's workers have written into a table's folder, to be committed as they are.

A file that no commit names is no part of the table: what a killed run leaves is removed by vacuum.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame

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
        told = json.dumps(_statistics(self.footer))
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


def _named() -> str:
    return f"part-{uuid4().hex}"


def file_system(place: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or an address, and the path in it."""
    if "://" not in place:
        return pafs.LocalFileSystem(), place.rstrip("/")
    system, path = pafs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return system, path.rstrip("/")


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The least and greatest whole numbers and instants of a file, and how many nulls it has: what
    a reader passes over files by."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    for place in range(footer.num_columns):
        chunks = [group.column(place) for group in groups]
        name, known = chunks[0].path_in_schema, [c.statistics for c in chunks]
        if "." in name or not all(s is not None and s.has_null_count for s in known):
            continue
        nulls[name] = sum(s.null_count for s in known)
        told = [s for s in known if s.has_min_max]
        if len(told) < sum(s.num_values > 0 for s in known) or not told:
            continue
        low, high = min(s.min for s in told), max(s.max for s in told)
        if isinstance(low, datetime):
            least[name], most[name] = _instant(low), _instant(high)
        elif isinstance(low, int) and not isinstance(low, bool):
            least[name], most[name] = low, high
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
