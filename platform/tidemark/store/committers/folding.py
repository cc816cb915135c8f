"""Compaction by delta-rs's commits: small files of a table are written as few; its rows stay.

A compaction is committed upon the very version that it has read, or not at all: every commit that
came in between voids it. delta-rs's own `optimize.compact` (1.6) is committed behind others too,
and of two at once both take effect, which doubles every row. Merges and replacements of a part see
what a compaction did meanwhile, and are tried again; one of the whole table does not, and is
committed upon the version that it has read for that reason.
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

from tidemark.store.committers import statistics
from tidemark.store.committers.committer import Folded
from tidemark.store.committers.staged import File, file_system
from tidemark.store.rows import arrow_schema

SMALL = 4
"""A file is small up to this part of the target: what has grown beyond is not written again."""

_GROUP = 50_000
"""Rows in a group of a file, which a reader passes over by its statistics."""


def fold(opened: DeltaTable, target: int, *, most: int = 1, dry_run: bool = False) -> Folded:
    """Write a table's small files as few of about a target size, in the order of their commits.

    Args:
        most: so many small files are left as they are.
        dry_run: only say what there is to do.

    Raises:
        CommitFailedError: another commit came meanwhile; nothing was changed.
    """
    listed = statistics.files(opened)
    small = sorted(
        (file for file in listed if file["size_bytes"] < target // SMALL),
        key=lambda file: (file["modification_time"], file["path"]),
    )
    bins = list(_bins(small, target)) if len(small) > most else []
    folded = Folded(len(listed), len(listed) - sum(len(each) - 1 for each in bins))
    if dry_run or not bins:
        return folded
    system, folder = file_system(opened.table_uri)
    written: list[File] = []
    try:
        written = [_write(opened, system, folder, each) for each in bins]
        now = time.time_ns() // 1_000_000
        gone = [
            RemoveAction(file["path"], False, now, file["size_bytes"], {})
            for each in bins
            for file in each
        ]
        added: list[AddAction | RemoveAction] = [f.added(changes=False) for f in written]
        opened.create_write_transaction(
            [*added, *gone],
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
    return folded


def _bins(files: Sequence[Mapping[str, Any]], target: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Neighbours that together have about the target size, two of them at least."""
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
    schema, name = arrow_schema(opened.schema()), f"folded-{uuid4().hex}.parquet"
    paths = [f"{folder}/{file['path']}" for file in files]
    rows = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
    with pq.ParquetWriter(f"{folder}/{name}", schema, filesystem=system) as writer:
        for group in _groups(rows.scanner(batch_readahead=2).to_batches()):
            writer.write_table(pa.Table.from_batches(group, schema), row_group_size=_GROUP)
    return File.there(system, folder, name)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches put together until they are as many rows as a group has."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= _GROUP:
            yield group
            group = []
    if group:
        yield group
