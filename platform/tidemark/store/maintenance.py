"""Maintenance: many small files become few, logs short, and files of no use go.

It runs beside streams: whatever it does is either committed upon what it has read or left for the
next time, and no run waits for it. What somebody may still read stays, however old it is:

| what | because |
| --- | --- |
| versions of references that arrivals recorded | a run joins with them for ever |
| changes that a mart or a continuous query has not read yet | it goes on from there |
| what tables had before a switch to rebuilt ones, for seven days | `rebuild --back` puts it back |
| files that no commit names yet, for a day at least | a run may be about to commit them |
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from tidemark.base.errors import ConflictError, DataError
from tidemark.store.committers import Committer, Spared
from tidemark.store.committers.leftovers import written
from tidemark.store.committers.staged import file_system
from tidemark.store.state import State
from tidemark.store.warehouse import FORMAT, SCRATCH, Warehouse

DAY = 86_400_000_000
RETENTION = 7 * DAY
KEPT = 7 * DAY
"""For so long there is a way back from a switch to rebuilt tables."""

TARGET = 128 << 20
"""The size that files are folded to; what has a quarter of it is left as it is."""

CHECKPOINTS = "_checkpoints"
"""The folder of a database for what continuous queries note: how far they have read."""

_SLACK = 600_000_000
"""Vacuums count whole hours, of which the next one has begun by the time that they look."""

_LOG = 7 * DAY
"""For so long a log tells of each commit, as the tables' own properties say."""


@dataclass(frozen=True)
class Maintained:
    """What was done for a table, or for the database's scratch folder.

    Args:
        before, after: its files before and after the compaction.
        removed, freed: files that were removed, and their bytes.
        busy: whether the compaction was left for the next time, as others wrote the table.
        spared: what is kept longer than the retention, in a few words.
    """

    table: str
    before: int = 0
    after: int = 0
    removed: int = 0
    freed: int = 0
    busy: bool = False
    spared: str = ""


def own_tables(warehouse: Warehouse) -> list[str]:
    """The tables of Tidemark's in the database, by name."""
    committer = warehouse.committer
    return [t for t in committer.tables() if _format(committer, t) == FORMAT]


def maintain(
    warehouse: Warehouse,
    tables: Iterable[str] = (),
    *,
    retention: int = RETENTION,
    dry_run: bool = False,
) -> Iterator[Maintained]:
    """Compact tables, write checkpoints of their logs and vacuum them, one after the other.

    Args:
        tables: which; by default all that are Tidemark's, and the scratch folder.
        retention: for how long files stay that a table does not have any more, in microseconds.
        dry_run: only say what there is to do.

    Raises:
        DataError: there is no such table.
    """
    there, asked, now = own_tables(warehouse), list(tables), time.time_ns() // 1000
    for name in asked:
        if name not in there:
            known = ", ".join(there) or "none"
            raise DataError(f"There is no table '{name}' of Tidemark's; there are: {known}.")
    needed = _recorded(warehouse, there)
    kept = _kept(warehouse, there, now - KEPT)
    read = _read(warehouse)
    for table in asked or there:
        yield _maintain(
            warehouse.committer,
            table,
            sorted(needed[table]),
            kept.get(table),
            read,
            now,
            retention,
            dry_run=dry_run,
        )
    if not asked:
        yield _scratch(warehouse, now - DAY, dry_run=dry_run)


def purge(warehouse: Warehouse, tables: Iterable[str], begun: int) -> Iterator[Maintained]:
    """Remove at once what tables do not have any more, and what their logs tell of it.

    Nobody reads an earlier version of them, or the changes since one, after that. What arrivals
    have recorded stays, as runs join with it.

    Args:
        begun: when what the tables have now began to be written, in microseconds: of files that no
            version names, those before go.
    """
    needed = _recorded(warehouse, own_tables(warehouse))
    for table in tables:
        if warehouse.version(table) < 0:
            continue
        versions, now = tuple(sorted(needed[table])), time.time_ns() // 1000
        spared = Spared(now + _SLACK, begun, versions, now + _SLACK)
        freed = warehouse.committer.vacuum(table, spared)
        short = not versions and warehouse.committer.shorten(table)
        told = f"{len(versions)} recorded versions" if versions else ""
        yield Maintained(table, *(0, 0), *freed, spared=told or ("" if short else "the log"))


def _maintain(
    committer: Committer,
    table: str,
    versions: Sequence[int],
    kept: int | None,
    read: Mapping[str, int],
    now: int,
    retention: int,
    *,
    dry_run: bool,
) -> Maintained:
    head = committer.head(table)
    assert head is not None
    busy, feed = False, max(read.get(head.life, head.version), 0)
    unread = committer.committed_at(table, feed) if feed < head.version else None
    needed = [*versions, *([feed] if unread is not None else [])]
    needed += [] if kept is None else [kept]
    oldest = min([now, *(committer.committed_at(table, v) or now for v in needed)])
    try:
        files = committer.compact(table, TARGET, dry_run=dry_run)
    except ConflictError:
        files, busy = committer.compact(table, TARGET, dry_run=True), True
        files = files._replace(after=files.before)
    if not dry_run:
        committer.checkpoint(table, forget=oldest > now - _LOG)
    since = now - retention + _SLACK
    if unread is not None:
        since = min(since, unread)
    # A file is written before the commit that it belongs to, perhaps long before.
    spared = Spared(since, min(since, (unread or now) - DAY), tuple(needed))
    freed = committer.vacuum(table, spared, dry_run=dry_run)
    told = [
        *([f"{len(versions)} recorded versions"] if versions else []),
        *([f"changes since version {feed}, unread"] if unread is not None else []),
        *([f"version {kept}, from before a switch"] if kept is not None else []),
    ]
    return Maintained(table, *files, *freed, busy=busy, spared=", ".join(told))


def _format(committer: Committer, table: str) -> int:
    return int(committer.properties(table).get("tidemark.format", 0))


def _kept(warehouse: Warehouse, tables: Iterable[str], since: int) -> dict[str, int]:
    """The versions that tables had before switches since an instant, by the tables' names."""
    found: dict[str, int] = {}
    for table in (t for t in tables if t.endswith("_state")):
        state = State.named(warehouse, table)
        switched = state.last().switched
        if switched > state.forgotten():
            commit = state.at(switched)
            if commit.swap is not None and commit.started >= since:
                found |= commit.swap.kept
    return found


def _recorded(warehouse: Warehouse, tables: Iterable[str]) -> dict[str, set[int]]:
    """The versions of tables that arrivals have recorded, by the tables' names."""
    found: dict[str, set[int]] = defaultdict(set)
    for timeline in (t for t in tables if t.endswith("_timeline")):
        texts = warehouse.take(timeline)["references"].unique().to_pylist()
        for name, version in (pair for text in texts if text for pair in json.loads(text).items()):
            found[name].add(int(version))
    return found


def _read(warehouse: Warehouse) -> dict[str, int]:
    """How far the slowest reader of a table's changes has come, by the table's identity."""
    found: dict[str, int] = {}
    for table, version in [*_read_by_marts(warehouse), *_read_by_queries(warehouse)]:
        found[table] = min(version, found.get(table, version))
    return found


def _read_by_marts(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """What marts noted in their properties (`dbt_project/macros/changes.sql`)."""
    spark, (location, database, *_, kind) = warehouse.spark, warehouse.place
    marts = Warehouse(spark, location, f"{database}_marts", False, kind).committer
    for mart in marts.tables():
        noted: dict[str, Any] = json.loads(marts.properties(mart).get("tidemark.read", "{}"))
        yield from ((table, at) for table, at in noted.items() if isinstance(at, int))


def _read_by_queries(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """What the checkpoints of continuous queries say: the version to go on with."""
    system, folder = file_system(warehouse.path(CHECKPOINTS))
    every = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    newest: dict[str, pafs.FileInfo] = {}
    for info in system.get_file_info(every):
        path = PurePosixPath(info.path)
        if path.parent.name == "offsets" and path.name.isdigit():
            known = newest.setdefault(str(path.parent), info)
            if int(path.name) > int(known.base_name):
                newest[str(path.parent)] = info
    for info in newest.values():
        with system.open_input_stream(info.path) as file:
            lines = file.readall().decode().splitlines()
        for line in lines:
            with suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and "reservoirVersion" in offset:
                    yield offset["reservoirId"], int(offset["reservoirVersion"]) - 1


def _scratch(warehouse: Warehouse, before: int, *, dry_run: bool) -> Maintained:
    """Remove the folders of work that ended without a farewell, written before an instant."""
    system, folder = file_system(warehouse.path(SCRATCH))
    removed = freed = 0
    for top in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        below = [top]
        if top.type == pafs.FileType.Directory:
            below += system.get_file_info(pafs.FileSelector(top.path, recursive=True))
        if max(written(info) for info in below) >= before:
            continue
        files = [info for info in below if info.type == pafs.FileType.File]
        removed, freed = removed + len(files), freed + sum(info.size for info in files)
        if not dry_run:
            system.delete_dir(top.path)
    return Maintained(SCRATCH, removed=removed, freed=freed)
