"""Compact tables with delta-rs: rewrite small files into a few larger ones with the same rows.

A compaction is committed only on top of the version that it has read, so any commit in between
makes it fail. delta-rs's own `optimize.compact` (1.6) also commits on top of later versions. If two
such compactions run at once, both take effect, which doubles every row.

Merges and partial replacements detect a concurrent compaction and are retried. A replacement of the
whole table does not detect one, so it is also committed only on top of the version that it has
read.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.base import thresholds
from tidemark.store.committers import statistics
from tidemark.store.committers.staged import File, file_system
from tidemark.store.committers.values import CompactionResult
from tidemark.store.rows import arrow_schema


def compact_files(
    opened: DeltaTable, target: int, *, most: int = 1, dry_run: bool = False
) -> CompactionResult:
    """Rewrite a table's small files into larger ones, in the order of their commits.

    Args:
        target: the approximate size of the new files, in bytes.
        most: a table with at most this many small files is left as it is.

    Raises:
        CommitFailedError: another commit came first; nothing was changed.
    """
    listed = statistics.files(opened)
    small = sorted(
        (file for file in listed if file["size_bytes"] < target // thresholds.SMALL_FILE_DIVISOR),
        key=lambda file: (file["modification_time"], file["path"]),
    )
    bins = list(_bins(small, target)) if len(small) > most else []
    result = CompactionResult(len(listed), len(listed) - sum(len(each) - 1 for each in bins))
    if dry_run or not bins:
        return result
    system, folder = file_system(opened.table_uri)
    written: list[File] = []
    try:
        written = [_write(opened, system, folder, each) for each in bins]
        now = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(file["path"], False, now, file["size_bytes"], {})
            for each in bins
            for file in each
        ]
        added: list[AddAction | RemoveAction] = [f.add_action(changes=False) for f in written]
        opened.create_write_transaction(
            [*added, *removed],
            "append",
            opened.schema(),
            commit_properties=CommitProperties(
                custom_metadata={"tidemark": "compaction"}, max_commit_retries=0
            ),
        )
    except Exception:
        for file in written:
            with suppress(OSError):
                system.delete_file(f"{folder}/{file.path}")
        raise
    return result


def _bins(files: Sequence[Mapping[str, Any]], target: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield groups of two or more consecutive files. A group has at most `target` bytes in all."""
    together: list[Mapping[str, Any]] = []
    size = 0
    for file in files:
        if size + file["size_bytes"] > target:
            if len(together) > 1:
                yield together
            together, size = [], 0
        together.append(file)
        size += file["size_bytes"]
    if len(together) > 1:
        yield together


def _write(
    opened: DeltaTable, system: pafs.FileSystem, folder: str, files: Sequence[Mapping[str, Any]]
) -> File:
    schema, name = arrow_schema(opened.schema()), f"compacted-{uuid4().hex}.parquet"
    paths = [f"{folder}/{file['path']}" for file in files]
    rows = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
    with pq.ParquetWriter(f"{folder}/{name}", schema, filesystem=system) as writer:
        for group in _groups(rows.scanner(batch_readahead=2).to_batches()):
            writer.write_table(
                pa.Table.from_batches(group, schema), row_group_size=thresholds.ROW_GROUP_ROWS
            )
    return File.there(system, folder, name)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield groups of batches; each except the last has at least the rows of a row group."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= thresholds.ROW_GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group
