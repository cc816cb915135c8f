"""Stage files that the engine's workers have written, and commit them as they are.

A staged file belongs to the table only when a commit refers to the file. Vacuum removes the files
that a killed run has staged.
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

from tidemark.base import thresholds
from tidemark.store.committers import statistics
from tidemark.store.committers.file_systems import file_system

_MICROS = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class File:
    """A Parquet file in a table's folder, by its relative path; `modified` is in milliseconds."""

    path: str
    size: int
    modified: int
    footer: pq.FileMetaData

    @classmethod
    def in_folder(cls, system: pafs.FileSystem, folder: str, path: str) -> "File":
        info = system.get_file_info(f"{folder}/{path}")
        modified = int((info.mtime or datetime.now(UTC)).timestamp() * 1000)
        return cls(path, info.size, modified, pq.read_metadata(info.path, filesystem=system))

    def add_action(self, *, changes: bool = True) -> AddAction:
        """Return the action that adds the file to the table.

        Args:
            changes: true if the action changes the table's rows; false for a compaction.
        """
        statistics_json = json.dumps(statistics.read_statistics(self.footer))
        return AddAction(self.path, self.size, {}, self.modified, changes, statistics_json)


@dataclass(frozen=True)
class Staged:
    """Parquet files that can be committed to a table once they are in its folder.

    Args:
        table: the path of a table's folder, or of a folder for temporary files.
        name: the subfolder of `table` that contains the files.
        files: the files that have rows. Their paths are relative to `table`.
    """

    table: str
    name: str
    files: Sequence[File]

    @property
    def folder(self) -> str:
        return f"{self.table}/{self.name}"

    @property
    def row_count(self) -> int:
        return sum(file.footer.num_rows for file in self.files)

    def placed_in_table(self, table: str) -> "Staged":
        """Return the files after linking or copying them into a table's folder.

        The original files stay, because other readers may need them.
        """
        system, target_folder = file_system(table)
        _, source_folder = file_system(self.table)
        name = _new_file_name()
        system.create_dir(f"{target_folder}/{name}")
        linked_files = list[File]()
        for file in self.files:
            path = f"{name}/{PurePosixPath(file.path).name}"
            target = f"{target_folder}/{path}"
            if isinstance(system, pafs.LocalFileSystem):
                Path(target).hardlink_to(f"{source_folder}/{file.path}")
            else:
                system.copy_file(f"{source_folder}/{file.path}", target)
            linked_files.append(replace(file, path=path))
        return Staged(table, name, linked_files)

    def with_rows(self, rows: pa.Table) -> "Staged":
        """Return the files, and a new file with a few more rows."""
        system, folder = file_system(self.table)
        path = f"{self.name}/also-{uuid4().hex}.parquet"
        pq.write_table(rows, f"{folder}/{path}", filesystem=system)
        return replace(self, files=[*self.files, File.in_folder(system, folder, path)])

    def commit_files(
        self,
        opened: DeltaTable,
        mode: Literal["append", "overwrite"],
        properties: CommitProperties,
        schema: Schema | None = None,
    ) -> None:
        """Add the files to the table.

        With `overwrite`, they replace all of its rows, and `schema` replaces its columns.
        """
        actions: list[AddAction | RemoveAction] = [file.add_action() for file in self.files]
        opened.create_write_transaction(
            actions, mode, schema or opened.schema(), commit_properties=properties
        )

    def open_reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """Return a reader of the files' rows, with the columns of `schema`."""
        system, folder = file_system(self.table)
        paths = [f"{folder}/{file.path}" for file in self.files]
        dataset = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
        return dataset.scanner().to_reader()


def stage_rows(rows: DataFrame, table: str) -> Staged:
    """Let the engine write rows into a new subfolder of a folder.

    Args:
        rows: the rows, which are computed here, once and in full.
        table: the path of the folder: a table's, or one for temporary files.
    """
    # By default, Spark writes INT96 instants, which do not have a time zone.
    rows.sparkSession.conf.set(_MICROS, "TIMESTAMP_MICROS")
    name = _new_file_name()
    writer = rows.write.option("maxRecordsPerFile", thresholds.STAGED_FILE_ROWS)
    writer.parquet(f"{table}/{name}")
    system, folder = file_system(table)
    infos = system.get_file_info(pafs.FileSelector(f"{folder}/{name}"))
    files = list[File]()
    for file_name in sorted(info.base_name for info in infos):
        if file_name.endswith(".parquet"):
            file = File.in_folder(system, folder, f"{name}/{file_name}")
            if file.footer.num_rows:
                files.append(file)
    return Staged(table, name, files)


def spill_tables(tables: Iterable[pa.Table], table: str) -> tuple[str, pa.Schema]:
    """Write in-memory tables into a new subfolder of a folder.

    Args:
        tables: one or more, with the same columns.
        table: as for `stage_rows`.

    Returns:
        The subfolder, and the columns.
    """
    system, folder = file_system(table)
    name = _new_file_name()
    remaining = iter(tables)
    first = next(remaining)
    system.create_dir(f"{folder}/{name}")
    with pq.ParquetWriter(f"{folder}/{name}/rows.parquet", first.schema, filesystem=system) as file:
        for part in chain([first], remaining):
            file.write_table(part.cast(first.schema))
    return f"{table}/{name}", first.schema


def _new_file_name() -> str:
    return f"part-{uuid4().hex}"
