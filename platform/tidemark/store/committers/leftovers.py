"""Vacuum tables that delta-rs commits to: remove unneeded files from a table's folder.

| file | removed |
| --- | --- |
| in the table, or in a spared version | never |
| removed from the table by a commit | if the commit was before `removed_since` |
| of the change data feed | if the file was written before `fed_since` |
| any other, such as a staged file | if the file was written before `written_since` |

A staged file that is not in any version is from a killed run, or from a run that is about to commit
it. delta-rs's own vacuum (1.6) removes such files at any age.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.base.instants import parse_instant
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.values import KeptFiles, VacuumResult

_HOUR = 3_600_000_000
_FEED = "_change_data"


def remove_leftovers(
    opened: DeltaTable,
    kept_files: KeptFiles,
    open_at: Callable[[int], DeltaTable],
    *,
    dry_run: bool,
) -> VacuumResult:
    """Remove the files that are not needed; with `dry_run`, only count them.

    Args:
        open_at: a function that opens the table at a version.
    """
    system, folder = file_system(opened.table_uri)
    used_paths = _list_paths(opened)
    for number in kept_files.versions:
        used_paths |= _list_paths_of_version(open_at, number)
    listed = _list_files(system, folder, pafs.FileType.File)
    leftovers = list(_find_leftovers(opened, kept_files, used_paths, listed))
    if not dry_run:
        # List old folders first: removing a file updates its folder's time.
        old_folders = _list_old_folders(system, folder, kept_files.written_since)
        for path, _ in leftovers:
            with suppress(FileNotFoundError):
                system.delete_file(f"{folder}/{path}")
        for old_folder in old_folders:
            infos = system.get_file_info(pafs.FileSelector(old_folder, recursive=True))
            if all(info.type == pafs.FileType.Directory for info in infos):
                system.delete_dir(old_folder)
    return VacuumResult(len(leftovers), sum(size for _, size in leftovers))


def _list_old_folders(system: pafs.FileSystem, folder: str, written_since: int) -> list[str]:
    """Return the visible subfolders of a table's folder that were written before an instant."""
    old_folders = list[str]()
    for path, info in _list_files(system, folder, pafs.FileType.Directory):
        is_visible = "/" not in path and path[0] not in "._"
        if is_visible and written_at(info) < written_since:
            old_folders.append(info.path)
    return old_folders


def trim_log(opened: DeltaTable) -> None:
    """Remove the entries of a table's transaction log before the opened version.

    That version must have a checkpoint. An entry contains minimum and maximum values of the files
    that its commit added, so it may still contain values that were erased from the table.
    """
    _remove_entries(opened, _numbered_entries(opened), opened.version())


def shorten_log(opened: DeltaTable, period_start: int, keep: int | None) -> None:
    """Remove the entries of a table's transaction log that a reader of recent versions ignores.

    Readers start with a checkpoint. So the entries before the newest checkpoint that is old enough
    are removed.

    Args:
        period_start: keep versions committed since this instant, in microseconds.
        keep: keep this version and all later ones, too; None for no such version.
    """
    entries = _numbered_entries(opened)
    first_kept = 0
    for number, info in entries:
        is_checkpoint = info.base_name.endswith(".checkpoint.parquet")
        is_kept = keep is not None and number > keep
        if is_checkpoint and not is_kept and written_at(info) < period_start:
            first_kept = max(first_kept, number)
    _remove_entries(opened, entries, first_kept)


def _numbered_entries(opened: DeltaTable) -> list[tuple[int, pafs.FileInfo]]:
    """Return the entries and checkpoints of a table's transaction log, each with its version."""
    system, folder = file_system(opened.table_uri)
    infos = system.get_file_info(pafs.FileSelector(f"{folder}/_delta_log"))
    entries = list[tuple[int, pafs.FileInfo]]()
    for info in infos:
        number = info.base_name.partition(".")[0]
        if number.isdigit():
            entries.append((int(number), info))
    return entries


def _remove_entries(
    opened: DeltaTable, entries: Iterable[tuple[int, pafs.FileInfo]], first_kept: int
) -> None:
    """Remove the entries before the version `first_kept`."""
    system, _ = file_system(opened.table_uri)
    for number, info in entries:
        if number < first_kept:
            with suppress(FileNotFoundError):
                system.delete_file(info.path)


def written_at(info: pafs.FileInfo) -> int:
    """Return when a file was written, in microseconds; the current time if unknown."""
    modified: datetime | None = info.mtime
    if modified is None:
        return time.time_ns() // 1000
    return parse_instant(modified)


def _find_leftovers(
    opened: DeltaTable,
    kept_files: KeptFiles,
    used_paths: set[str],
    listed: Iterable[tuple[str, pafs.FileInfo]],
) -> Iterator[tuple[str, int]]:
    hours = math.ceil((time.time_ns() // 1000 - kept_files.removed_since) / _HOUR)
    removed = _removed_files(opened, 0)
    long_ago = _removed_files(opened, max(hours, 0))
    for path, info in listed:
        is_feed = path.startswith(f"{_FEED}/")
        is_hidden = path[0] in "._" and not is_feed
        if path in used_paths or is_hidden:
            continue
        if path in removed:
            is_leftover = path in long_ago
        else:
            written_since = kept_files.written_since
            if is_feed and kept_files.fed_since is not None:
                written_since = kept_files.fed_since
            is_leftover = written_at(info) < written_since
        if is_leftover:
            yield path, info.size


def _removed_files(opened: DeltaTable, hours: int) -> set[str]:
    """Return the files that commits removed from the table at least `hours` ago."""
    return set(opened.vacuum(hours, dry_run=True, enforce_retention_duration=False))


def _list_paths(opened: DeltaTable) -> set[str]:
    return set(pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist())


def _list_paths_of_version(open_at: Callable[[int], DeltaTable], number: int) -> set[str]:
    """Return the files of a version; none if the transaction log does not have it any more."""
    try:
        return _list_paths(open_at(number))
    except DeltaError:
        return set()


def _list_files(
    system: pafs.FileSystem, folder: str, kind: pafs.FileType
) -> list[tuple[str, pafs.FileInfo]]:
    """Return all files (or folders) below a table's folder, with relative paths, except its log."""
    listed: list[tuple[str, pafs.FileInfo]] = []
    for entry in system.get_file_info(pafs.FileSelector(folder)):
        if entry.base_name == "_delta_log":
            continue
        infos = [entry]
        if entry.type == pafs.FileType.Directory:
            infos += system.get_file_info(pafs.FileSelector(entry.path, recursive=True))
        for info in infos:
            if info.type == kind:
                listed.append((info.path.removeprefix(f"{folder}/"), info))
    return listed
