"""Maintain tables: compact small files, checkpoint and trim transaction logs, vacuum.

Maintenance runs in parallel with streams, and no run waits for it. A compaction is committed only
on top of the version that it has read; if other writers prevent that, it is postponed to the next
maintenance. Files that a reader may still need are kept, however old they are:

| kept | because |
| --- | --- |
| versions of lookup tables that arrivals recorded | runs join with them forever |
| changes that a mart or a streaming query has not read yet | it continues from there |
| versions from before a promotion, for seven days | `rebuild --rollback` restores them |
| files that no commit refers to yet, for at least a day | a run may be about to commit them |
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.fs as pafs

from tidemark.base import thresholds
from tidemark.base.counts import format_count
from tidemark.base.errors import ConflictError, DataError, describe_unknown, summarize
from tidemark.define.tables import Role, TableName
from tidemark.store.commits.kinds import Promotion
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.leftovers import written_at
from tidemark.store.committers.values import KeptFiles
from tidemark.store.state import State
from tidemark.store.upkeep.readers import versions_read
from tidemark.store.warehouse import FORMAT, SCRATCH, Warehouse

DAY = 86_400_000_000
RETENTION = 7 * DAY
_ROLLBACK_PERIOD = 7 * DAY
"""How long a promotion of rebuilt tables can be rolled back."""

_SLACK = 600_000_000
"""Microseconds by which ages are reduced, because vacuum rounds them up to whole hours."""

_LOG = 7 * DAY
"""How long transaction logs keep each commit, equal to the tables' property."""


@dataclass(frozen=True)
class MaintenanceResult:
    """The result of maintaining a table or the database's scratch folder.

    Args:
        before, after: the number of files before and after compaction.
        removed, freed: the number of removed files, and their bytes.
        busy: true if compaction was postponed because other writers changed the table.
        spared: a short description of the versions that are kept longer than the retention.
        trouble: the error message if the maintenance failed, else empty.
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

    def own(table: str) -> TableName | None:
        properties = warehouse.properties(table)
        return (
            TableName.of(table, properties)
            if properties.get("tidemark.format") == str(FORMAT)
            else None
        )

    found = (_run_unless_dropped(warehouse, table, own) for table in warehouse.tables())
    return [name for name in found if name is not None]


def maintain(
    warehouse: Warehouse,
    tables: Iterable[str] = (),
    *,
    retention: int = RETENTION,
    dry_run: bool = False,
) -> Iterator[MaintenanceResult]:
    """Compact tables, checkpoint their transaction logs and vacuum them, one after the other.

    A table that is dropped in the meantime is skipped. An error of one table is reported in its
    result and does not block the others.

    Args:
        tables: the tables to maintain. The default is all of Tidemark's tables and the scratch
            folder.
        retention: how long removed files are kept, in microseconds.
        dry_run: true to change nothing, and to return what would be changed.
    """
    existing, asked, now = own_tables(warehouse), list(tables), time.time_ns() // 1000
    for name in asked:
        if name not in existing:
            raise DataError(describe_unknown("Tidemark table", name, existing))
    versions = _versions_in_arrivals(warehouse, existing)
    kept = _versions_for_rollback(warehouse, existing, now - _ROLLBACK_PERIOD)
    read = versions_read(warehouse)
    for table in asked or existing:
        found = _try_maintaining(
            warehouse,
            table,
            lambda name: _maintain(
                warehouse,
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


def purge(warehouse: Warehouse, tables: Iterable[str], begun: int) -> Iterator[MaintenanceResult]:
    """Remove files that tables do not contain any more, and the history in their transaction logs.

    No retention applies. After that, earlier versions of the tables, and the changes since these
    versions, can't be read. Versions that arrivals recorded are kept, because runs join with them;
    so is the transaction log of a table with such versions.

    Args:
        begun: when the erasure began, in microseconds. A file that no version refers to is removed
            only if it is older: a run may be about to commit a newer one.
    """
    recorded = _versions_in_arrivals(warehouse, own_tables(warehouse))
    for table in tables:
        if warehouse.version(table) < 0:
            continue
        versions, now = tuple(sorted(recorded[table])), time.time_ns() // 1000
        spared = KeptFiles(now + _SLACK, begun, versions, now + _SLACK)
        freed = warehouse.vacuum(table, spared)
        if not versions:
            warehouse.trim_log(table)
        spared_text = format_count(len(versions), "recorded version") if versions else ""
        yield MaintenanceResult(table, *(0, 0), *freed, spared=spared_text)


def combine_errors(found: Iterable[MaintenanceResult]) -> DataError | None:
    """Return one error for all tables whose maintenance failed; None if none did."""
    troubles = [f"Table '{each.table}': {each.trouble}" for each in found if each.trouble]
    return (
        DataError(f"Maintenance failed for some tables. {'. '.join(troubles)}.")
        if troubles
        else None
    )


def _try_maintaining(
    warehouse: Warehouse, table: str, work: Callable[[str], MaintenanceResult]
) -> MaintenanceResult | None:
    """Return the result of maintaining a table, or its error; None if the table was dropped."""
    try:
        return _run_unless_dropped(warehouse, table, work)
    except Exception as error:
        return MaintenanceResult(table, trouble=summarize(error))


def _maintain(
    warehouse: Warehouse,
    table: str,
    versions: Sequence[int],
    kept: int | None,
    read: Mapping[str, int],
    now: int,
    retention: int,
    *,
    dry_run: bool,
) -> MaintenanceResult:
    head = warehouse.head(table)
    if head is None:
        raise DataError(f"Table '{table}' does not exist any more.")
    busy, feed = False, max(read.get(head.table_id, head.version), 0)
    unread = warehouse.committed_at(table, feed) if feed < head.version else None
    looked = [*versions, *([feed] if unread is not None else [])]
    looked += [] if kept is None else [kept]
    oldest = min([now, *(warehouse.committed_at(table, v) or now for v in looked)])
    try:
        files = warehouse.compact(table, thresholds.COMPACTED_FILE_BYTES, dry_run=dry_run)
    except ConflictError:
        files, busy = warehouse.compact(table, thresholds.COMPACTED_FILE_BYTES, dry_run=True), True
        files = files._replace(after=files.before)
    if not dry_run:
        warehouse.checkpoint(table, forget=oldest > now - _LOG)
    since = now - retention + _SLACK
    if unread is not None:
        since = min(since, unread)
    # A file may be written long before the commit that adds it.
    spared = KeptFiles(since, min(since, (unread or now) - DAY), tuple(looked))
    freed = warehouse.vacuum(table, spared, dry_run=dry_run)
    spared_text = [
        *([format_count(len(versions), "recorded version")] if versions else []),
        *([f"unread changes since version {feed}"] if unread is not None else []),
        *([f"version {kept}, from before a promotion"] if kept is not None else []),
    ]
    return MaintenanceResult(table, *files, *freed, busy=busy, spared=", ".join(spared_text))


def _scratch(warehouse: Warehouse, before: int, *, dry_run: bool) -> MaintenanceResult:
    """Remove scratch folders last written before an instant: killed processes left them behind."""
    system, folder = file_system(warehouse.path(SCRATCH))
    removed = freed = 0
    for top in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        below = [top]
        if top.type == pafs.FileType.Directory:
            below += system.get_file_info(pafs.FileSelector(top.path, recursive=True))
        if max(written_at(info) for info in below) >= before:
            continue
        files = [info for info in below if info.type == pafs.FileType.File]
        removed, freed = removed + len(files), freed + sum(info.size for info in files)
        if not dry_run:
            system.delete_dir(top.path)
    return MaintenanceResult(SCRATCH, removed=removed, freed=freed)


_T = TypeVar("_T")


def _run_unless_dropped(warehouse: Warehouse, table: str, look: Callable[[str], _T]) -> _T | None:
    """Return `look(table)`; None if the table was dropped in the meantime."""
    try:
        return look(table)
    except Exception:
        if warehouse.head(table) is None:
            return None
        raise


def _versions_for_rollback(
    warehouse: Warehouse, tables: Iterable[TableName], since: int
) -> dict[str, int]:
    """Return, by table, the version that a rollback of the last promotion restores.

    A table is missing if no promotion can be rolled back, or if the last one started before `since`
    (microseconds).
    """

    def before(table: str) -> dict[str, int]:
        state = State.from_table(warehouse, table)
        promoted = state.last().promoted
        if promoted <= state.forgotten():
            return {}
        commit = state.at(promoted)
        return (
            dict(commit.kept) if isinstance(commit, Promotion) and commit.started >= since else {}
        )

    found: dict[str, int] = {}
    for table in (t for t in tables if t.role is Role.STATE):
        found |= _run_unless_dropped(warehouse, table, before) or {}
    return found


def _versions_in_arrivals(warehouse: Warehouse, tables: Iterable[TableName]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for timeline in (t for t in tables if t.role is Role.TIMELINE):
        arrivals = _run_unless_dropped(warehouse, timeline, warehouse.take)
        texts = [] if arrivals is None else arrivals["lookups"].unique().to_pylist()
        for name, version in (pair for text in texts for pair in json.loads(text).items()):
            found[name].add(int(version))
    return found
