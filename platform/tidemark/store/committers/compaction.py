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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.base import thresholds
from tidemark.define.tables import Role, TableName
from tidemark.store.committers import statistics
from tidemark.store.committers.data_files import open_dataset
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.staged import File
from tidemark.store.committers.values import CompactionResult
from tidemark.store.rows import arrow_schema

_WINDOW_START = "window_start"

_WITH_WINDOWS = {Role.STATE, Role.PUBLISHED, Role.QUARANTINE, Role.PANES}
"""The roles of tables whose rows belong to windows. Runs read and merge the newest windows."""

_GROWTH = 4
"""By which factor a file has more rows than the file with the next newer windows."""

_FIRST_INSTANT = -(1 << 63)


@dataclass(frozen=True)
class _Rewrite:
    """Files whose rows are written to new files.

    Args:
        files: the files, in the order of their commits.
        cuts: instants in ascending order. Each new file contains the windows that start before the
            next cut. Without cuts, there is one new file.
    """

    files: Sequence[Mapping[str, Any]]
    cuts: Sequence[int] = ()

    @property
    def saved_files(self) -> int:
        """By how much the number of files decreases; negative if files are split."""
        return len(self.files) - len(self.cuts) - 1


def compact_files(
    opened: DeltaTable, target_bytes: int, *, max_files: int = 1, dry_run: bool = False
) -> CompactionResult:
    """Rewrite a table's small files into larger ones, in the order of their commits.

    In a table with windows, the newest windows get files of their own: a merge rewrites each file
    that has one of its rows, and readers take a whole file for a few of its rows.

    Args:
        target_bytes: the approximate size of the new files, in bytes.
        max_files: a table with at most this many small files is left as it is, except for its
            newest windows.

    Raises:
        CommitFailedError: another commit came first; nothing was changed.
    """
    listed = statistics.list_files(opened)
    system, folder = file_system(opened.table_uri)
    rewrites = list(_plan_rewrites(opened, listed, target_bytes, max_files))
    after = len(listed) - sum(rewrite.saved_files for rewrite in rewrites)
    result = CompactionResult(len(listed), after)
    if dry_run or not rewrites:
        return result
    written: list[File] = []
    try:
        for rewrite in rewrites:
            written += _write_files(opened, system, folder, rewrite)
        opened.create_write_transaction(
            _list_actions(rewrites, written),
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


def _list_actions(
    rewrites: Sequence[_Rewrite], written: Sequence[File]
) -> list[AddAction | RemoveAction]:
    """Return the actions that replace the files of the rewrites by the written ones."""
    actions = list[AddAction | RemoveAction]()
    for file in written:
        actions.append(file.add_action(changes=False))
    now_millis = time.time_ns() // 1_000_000
    for rewrite in rewrites:
        for file in rewrite.files:
            remove = RemoveAction(file["path"], False, now_millis, file["size_bytes"], {})
            actions.append(remove)
    return actions


def _plan_rewrites(
    opened: DeltaTable,
    listed: Sequence[Mapping[str, Any]],
    target_bytes: int,
    max_files: int,
) -> Iterator[_Rewrite]:
    """Yield the files of a table that a compaction rewrites."""
    max_bytes = target_bytes // thresholds.SMALL_FILE_DIVISOR
    small_files = sorted(
        (file for file in listed if file["size_bytes"] < max_bytes),
        key=lambda file: (file["modification_time"], file["path"]),
    )
    groups = list[Sequence[Mapping[str, Any]]]()
    if len(small_files) > max_files:
        groups.extend(_group_files(small_files, target_bytes))
    newest_file = _find_newest_windows(opened, listed)
    is_large = False
    if newest_file is not None:
        is_large = newest_file["num_records"] > _GROWTH * thresholds.NEWEST_ROWS
        if is_large and not any(newest_file in files for files in groups):
            groups.append([newest_file])
    for files in groups:
        if newest_file is None or newest_file not in files:
            yield _Rewrite(files)
            continue
        rewrite = _Rewrite(files, _find_cuts(opened, files))
        # Without cuts, the file has only the newest windows.
        is_mixed = is_large and len(rewrite.cuts) > 0
        if rewrite.saved_files > 0 or is_mixed:
            yield rewrite


def _find_newest_windows(
    opened: DeltaTable, listed: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the file with the newest windows; None for a table without windows."""
    name = TableName.from_properties("", opened.metadata().configuration)
    if name is None or name.role not in _WITH_WINDOWS:
        return None
    latest = f"max.{_WINDOW_START}"
    # An instant beyond Python's range is a text.
    with_windows = [file for file in listed if isinstance(file.get(latest), datetime)]
    return max(with_windows, key=lambda file: file[latest], default=None)


def _find_cuts(opened: DeltaTable, files: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the instants that separate the newest windows of some files from the older ones.

    The newest file gets about `NEWEST_ROWS` rows, and each older one a multiple of the one before,
    so that there are few files even for many rows.
    """
    rows = open_dataset(opened.table_uri, files, arrow_schema(opened.schema()))
    starts = rows.to_table(columns=[_WINDOW_START])
    starts_descending = starts[_WINDOW_START].drop_null().cast(pa.int64()).sort("descending")
    cuts = set[int]()
    rows = thresholds.NEWEST_ROWS
    while rows < len(starts_descending):
        cuts.add(starts_descending[rows - 1].as_py())
        rows *= _GROWTH
    # No window starts before the first one, so this cut would leave an empty file.
    if len(starts_descending):
        cuts.discard(starts_descending[-1].as_py())
    return sorted(cuts)


def _group_files(
    files: Sequence[Mapping[str, Any]], max_bytes: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield groups of two or more consecutive files.

    A group has at most `max_bytes` bytes in all.
    """
    group: list[Mapping[str, Any]] = []
    size = 0
    for file in files:
        if size + file["size_bytes"] > max_bytes:
            if len(group) > 1:
                yield group
            group = []
            size = 0
        group.append(file)
        size += file["size_bytes"]
    if len(group) > 1:
        yield group


def _write_files(
    opened: DeltaTable, system: pafs.FileSystem, folder: str, rewrite: _Rewrite
) -> list[File]:
    """Write the rows of files into new files, and return these."""
    schema = arrow_schema(opened.schema())
    names = [f"compacted-{uuid4().hex}.parquet" for _ in range(len(rewrite.cuts) + 1)]
    rows = open_dataset(opened.table_uri, rewrite.files, schema)
    with ExitStack() as files:
        writers = list[_GroupedWriter]()
        for name in names:
            writer = pq.ParquetWriter(f"{folder}/{name}", schema, filesystem=system)
            writers.append(files.enter_context(_GroupedWriter(writer)))
        last_start = _FIRST_INSTANT
        for batch in rows.scanner(batch_readahead=2).to_batches():
            if len(writers) == 1:
                writers[0].write_batch(batch)
                continue
            starts = _window_starts(batch, last_start)
            if len(starts):
                last_start = starts[-1].as_py()
            pieces = np.searchsorted(rewrite.cuts, starts.to_numpy(), side="right")
            for piece in np.unique(pieces):
                writers[piece].write_batch(batch.filter(pa.array(pieces == piece)))
    return [File.in_folder(system, folder, name) for name in names]


def _window_starts(batch: pa.RecordBatch, last_start: int) -> pa.Array:
    """Return the start of the window of each row.

    A row without a window, such as a marker of the state, stays with the row before it.

    Args:
        last_start: the start of the last window of the batch before.
    """
    starts = batch[_WINDOW_START].cast(pa.int64())
    starts = pc.fill_null_forward(starts)  # pyright: ignore[reportAttributeAccessIssue]
    return pc.fill_null(starts, last_start)


class _GroupedWriter:
    """Writes batches of rows to a file, as row groups of `ROW_GROUP_ROWS` rows or more."""

    def __init__(self, file: pq.ParquetWriter) -> None:
        self._file = file
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write_group()
        self._file.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= thresholds.ROW_GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._batches:
            rows = pa.Table.from_batches(self._batches)
            self._file.write_table(rows, row_group_size=thresholds.ROW_GROUP_ROWS)
        self._batches = []
        self._rows = 0
