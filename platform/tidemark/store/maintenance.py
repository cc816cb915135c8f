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

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from tidemark.base.errors import ConflictError, DataError
from tidemark.define.tables import TableName
from tidemark.store import needed
from tidemark.store.committers import Committer, Spared
from tidemark.store.committers.leftovers import written
from tidemark.store.committers.staged import file_system
from tidemark.store.needed import if_there
from tidemark.store.warehouse import FORMAT, SCRATCH, Warehouse

DAY = 86_400_000_000
RETENTION = 7 * DAY
KEPT = 7 * DAY
"""For so long there is a way back from a switch to rebuilt tables."""

TARGET = 128 << 20
"""The size that files are folded to; what has a quarter of it is left as it is."""

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
        trouble: why it could not be done, as far as it was not.
    """

    table: str
    before: int = 0
    after: int = 0
    removed: int = 0
    freed: int = 0
    busy: bool = False
    spared: str = ""
    trouble: str = ""


def own_tables(warehouse: Warehouse) -> list[TableName]:
    """Return Tidemark's tables in the database, each with its owner and role, sorted by name."""
    committer = warehouse.committer

    def own(table: str) -> TableName | None:
        told = committer.properties(table)
        return TableName.of(table, told) if told.get("tidemark.format") == str(FORMAT) else None

    found = (if_there(committer, table, own) for table in committer.tables())
    return [name for name in found if name is not None]


def maintain(
    warehouse: Warehouse,
    tables: Iterable[str] = (),
    *,
    retention: int = RETENTION,
    dry_run: bool = False,
) -> Iterator[Maintained]:
    """Compact tables, write checkpoints of their logs and vacuum them, one after the other.

    One that is dropped meanwhile is left out, and the trouble of one is told with it: the others
    are not kept waiting.

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
    versions = needed.recorded(warehouse, there)
    kept = needed.kept(warehouse, there, now - KEPT)
    read = needed.read(warehouse)
    for table in asked or there:
        found = _tried(
            warehouse.committer,
            table,
            lambda name: _maintain(
                warehouse.committer,
                name,
                sorted(versions[name]),
                kept.get(name),
                read,
                now,
                retention,
                dry_run=dry_run,
            ),
        )
        if found is not None:
            yield found
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
    recorded = needed.recorded(warehouse, own_tables(warehouse))
    for table in tables:
        if warehouse.version(table) < 0:
            continue
        versions, now = tuple(sorted(recorded[table])), time.time_ns() // 1000
        spared = Spared(now + _SLACK, begun, versions, now + _SLACK)
        freed = warehouse.committer.vacuum(table, spared)
        short = not versions and warehouse.committer.shorten(table)
        told = f"{len(versions)} recorded versions" if versions else ""
        yield Maintained(table, *(0, 0), *freed, spared=told or ("" if short else "the log"))


def troubles(found: Iterable[Maintained]) -> DataError | None:
    """One error for all tables with trouble; None where none has any."""
    told = [f"Table '{each.table}': {each.trouble.rstrip('.')}" for each in found if each.trouble]
    return DataError(f"Not everything could be maintained. {'. '.join(told)}.") if told else None


def _tried(
    committer: Committer, table: str, work: Callable[[str], Maintained]
) -> Maintained | None:
    """What was done for a table, or what kept it from that; None where it is gone by now."""
    try:
        return if_there(committer, table, work)
    except Exception as error:
        first, *_ = str(error).strip().splitlines() or [""]
        return Maintained(table, trouble=first or type(error).__name__)


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
    if head is None:
        raise DataError(f"Table '{table}' is gone.")
    busy, feed = False, max(read.get(head.life, head.version), 0)
    unread = committer.committed_at(table, feed) if feed < head.version else None
    looked = [*versions, *([feed] if unread is not None else [])]
    looked += [] if kept is None else [kept]
    oldest = min([now, *(committer.committed_at(table, v) or now for v in looked)])
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
    spared = Spared(since, min(since, (unread or now) - DAY), tuple(looked))
    freed = committer.vacuum(table, spared, dry_run=dry_run)
    told = [
        *([f"{len(versions)} recorded versions"] if versions else []),
        *([f"changes since version {feed}, unread"] if unread is not None else []),
        *([f"version {kept}, from before a switch"] if kept is not None else []),
    ]
    return Maintained(table, *files, *freed, busy=busy, spared=", ".join(told))


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
