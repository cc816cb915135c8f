"""Vacuum of tables that delta-rs commits to: which files in a table's folder are of no use.

| a file that | goes |
| --- | --- |
| the table has, or a version that is spared | never |
| a commit took out of the table | when that was before `removed_since` |
| no version names | when it was written before `written_since` |

The last are files of the change feed, and those that a killed run had staged. delta-rs's own vacuum
(1.6) takes what no commit names yet for what none will ever name, however young it is.
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

from tidemark.base.instants import instant
from tidemark.store.committers.committer import Freed, Spared
from tidemark.store.committers.staged import file_system

_HOUR = 3_600_000_000
_FEED = "_change_data"


def vacuum(
    opened: DeltaTable, spared: Spared, at: Callable[[int], DeltaTable], *, dry_run: bool
) -> Freed:
    """Remove what is of no use, or only count it.

    Args:
        at: the table as of a version.
    """
    system, folder = file_system(opened.table_uri)
    own = _paths(opened).union(*(_version(at, number) for number in spared.versions))
    listed = _listed(system, folder, pafs.FileType.File)
    found = list(_leftovers(opened, spared, own, listed))
    if not dry_run:
        # Removing a file makes its folder look new.
        old = [
            info.path
            for path, info in _listed(system, folder, pafs.FileType.Directory)
            if "/" not in path and path[0] not in "._" and written(info) < spared.written_since
        ]
        for path, _ in found:
            with suppress(FileNotFoundError):
                system.delete_file(f"{folder}/{path}")
        for path in old:
            below = system.get_file_info(pafs.FileSelector(path, recursive=True))
            if all(info.type == pafs.FileType.Directory for info in below):
                system.delete_dir(path)
    return Freed(len(found), sum(size for _, size in found))


def shorten(opened: DeltaTable) -> None:
    """Remove what the table's log has of the versions before this one, of which it has a
    checkpoint: each commit tells the least and greatest values of the files that it added."""
    system, folder = file_system(opened.table_uri)
    for info in system.get_file_info(pafs.FileSelector(f"{folder}/_delta_log")):
        number = info.base_name.partition(".")[0]
        if number.isdigit() and int(number) < opened.version():
            with suppress(FileNotFoundError):
                system.delete_file(info.path)


def written(info: pafs.FileInfo) -> int:
    """When a file was written, in microseconds; now, where nobody knows."""
    at: datetime | None = info.mtime
    return time.time_ns() // 1000 if at is None else instant(at)


def _leftovers(
    opened: DeltaTable,
    spared: Spared,
    own: set[str],
    listed: Iterable[tuple[str, pafs.FileInfo]],
) -> Iterator[tuple[str, int]]:
    hours = math.ceil((time.time_ns() // 1000 - spared.removed_since) / _HOUR)
    removed, long_ago = _removed(opened, 0), _removed(opened, max(hours, 0))
    for path, info in listed:
        if path in own or (path[0] in "._" and not path.startswith(f"{_FEED}/")):
            continue
        fed = path.startswith(f"{_FEED}/") and spared.fed_since is not None
        since = spared.fed_since if fed else spared.written_since
        gone = path in long_ago if path in removed else written(info) < (since or 0)
        if gone:
            yield path, info.size


def _removed(opened: DeltaTable, hours: int) -> set[str]:
    """The files that commits took out of the table so long ago."""
    return set(opened.vacuum(hours, dry_run=True, enforce_retention_duration=False))


def _paths(opened: DeltaTable) -> set[str]:
    return set(pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist())


def _version(at: Callable[[int], DeltaTable], number: int) -> set[str]:
    """The files of a version; none where the log does not go back so far, so nobody can read it."""
    try:
        return _paths(at(number))
    except DeltaError:
        return set()


def _listed(
    system: pafs.FileSystem, folder: str, kind: pafs.FileType
) -> list[tuple[str, pafs.FileInfo]]:
    """What lies below a table's folder, but for its log, by its path there."""
    found: list[tuple[str, pafs.FileInfo]] = []
    for top in system.get_file_info(pafs.FileSelector(folder)):
        if top.base_name == "_delta_log":
            continue
        below = [top]
        if top.type == pafs.FileType.Directory:
            below += system.get_file_info(pafs.FileSelector(top.path, recursive=True))
        found += [(i.path.removeprefix(f"{folder}/"), i) for i in below if i.type == kind]
    return found
