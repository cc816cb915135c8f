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
from tidemark.base.errors import ConflictError, DataError, describe_unknown, summarize_error
from tidemark.define.tables import Role, TableName
from tidemark.store.commits.kinds import Promotion
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.leftovers import written_at
from tidemark.store.committers.values import CompactionResult, Head, KeptFiles
from tidemark.store.state import State
from tidemark.store.upkeep.readers import versions_read
from tidemark.store.warehouse import FORMAT, SCRATCH, Warehouse

DAY = 86_400_000_000
RETENTION = 7 * DAY
_ROLLBACK_PERIOD = 7 * DAY
"""How long a promotion of rebuilt tables can be rolled back."""

_SLACK = 600_000_000
"""Microseconds by which ages are reduced, because vacuum rounds them up to whole hours."""

_LOG_RETENTION = 7 * DAY
"""How long transaction logs keep each commit, equal to the tables' property."""


@dataclass(frozen=True)
class MaintenanceResult:
    """The files that maintenance compacted and removed, in a table or the scratch folder.

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

    def read_name(table: str) -> TableName | None:
        properties = warehouse.read_properties(table)
        if properties.get("tidemark.format") != str(FORMAT):
            return None
        return TableName.from_properties(table, properties)

    names = list[TableName]()
    for table in warehouse.list_tables():
        name = _run_unless_dropped(warehouse, table, read_name)
        if name is not None:
            names.append(name)
    return names


def maintain_tables(
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
    existing = own_tables(warehouse)
    requested = list(tables)
    started = time.time_ns() // 1000
    for table in requested:
        if table not in existing:
            raise DataError(describe_unknown("Tidemark table", table, existing))
    maintenance = _Maintenance(
        warehouse,
        recorded_versions=_versions_in_arrivals(warehouse, existing),
        backups=_versions_for_rollback(warehouse, existing, started - _ROLLBACK_PERIOD),
        read_versions=versions_read(warehouse),
        started=started,
        retention=retention,
        dry_run=dry_run,
    )
    for table in requested or existing:
        result = maintenance.try_maintaining(table)
        if result is not None:
            yield result
    if not requested:
        yield _remove_scratch_folders(warehouse, started - DAY, dry_run=dry_run)


def purge_old_files(
    warehouse: Warehouse, tables: Iterable[str], erasure_start: int
) -> Iterator[MaintenanceResult]:
    """Remove files that tables do not contain any more, and the history in their transaction logs.

    No retention applies. After that, earlier versions of the tables, and the changes since these
    versions, can't be read. Versions that arrivals recorded are kept, because runs join with them;
    so is the transaction log of a table with such versions.

    Args:
        erasure_start: when the erasure began, in microseconds. A file that no version refers to is
            removed only if it is older: a run may be about to commit a newer one.
    """
    recorded = _versions_in_arrivals(warehouse, own_tables(warehouse))
    for table in tables:
        if warehouse.newest_version(table) < 0:
            continue
        versions = tuple(sorted(recorded[table]))
        future = time.time_ns() // 1000 + _SLACK
        kept_files = KeptFiles(
            removed_since=future,
            written_since=erasure_start,
            versions=versions,
            fed_since=future,
        )
        vacuumed = warehouse.vacuum_table(table, kept_files)
        if versions:
            spared = format_count(len(versions), "recorded version")
        else:
            warehouse.trim_log(table)
            spared = ""
        yield MaintenanceResult(table, removed=vacuumed.files, freed=vacuumed.bytes, spared=spared)


def combine_errors(results: Iterable[MaintenanceResult]) -> DataError | None:
    """Return one error for all tables whose maintenance failed; None if none did."""
    troubles = list[str]()
    for result in results:
        if result.trouble:
            troubles.append(f"Table '{result.table}': {result.trouble}")
    if not troubles:
        return None
    return DataError(f"Maintenance failed for some tables. {'. '.join(troubles)}.")


@dataclass(frozen=True)
class _KeptVersions:
    """The versions of a table that are kept longer than the retention.

    Args:
        recorded: the versions of a lookup table that arrivals recorded.
        backup: the version that a rollback of the last promotion restores; None if there is none.
        read_version: the version that the slowest reader of changes has reached.
        unread_since: when `read_version` was committed, if it is not the newest version; otherwise
            None.
    """

    recorded: Sequence[int]
    backup: int | None
    read_version: int
    unread_since: int | None

    def list_versions(self) -> list[int]:
        versions = list(self.recorded)
        if self.unread_since is not None:
            versions.append(self.read_version)
        if self.backup is not None:
            versions.append(self.backup)
        return versions

    def __str__(self) -> str:
        descriptions = list[str]()
        if self.recorded:
            descriptions.append(format_count(len(self.recorded), "recorded version"))
        if self.unread_since is not None:
            descriptions.append(f"unread changes since version {self.read_version}")
        if self.backup is not None:
            descriptions.append(f"version {self.backup}, from before a promotion")
        return ", ".join(descriptions)


@dataclass(frozen=True)
class _Maintenance:
    """A maintenance of several tables.

    Args:
        recorded_versions: the versions that arrivals recorded, by table.
        backups: the version that a rollback restores, by table.
        read_versions: the version that the slowest reader of changes has reached, by the table's
            identity.
        started: when the maintenance started, in microseconds.
        retention, dry_run: as in `maintain_tables`.
    """

    warehouse: Warehouse
    recorded_versions: Mapping[str, Iterable[int]]
    backups: Mapping[str, int]
    read_versions: Mapping[str, int]
    started: int
    retention: int
    dry_run: bool

    def try_maintaining(self, table: str) -> MaintenanceResult | None:
        """Return the result of maintaining a table, or its error; None if the table was dropped."""
        try:
            return _run_unless_dropped(self.warehouse, table, self._maintain_table)
        except Exception as error:
            return MaintenanceResult(table, trouble=summarize_error(error))

    def _maintain_table(self, table: str) -> MaintenanceResult:
        head = self.warehouse.find_head(table)
        if head is None:
            raise DataError(f"Table '{table}' does not exist any more.")
        kept_versions = self._find_kept_versions(table, head)
        oldest = self.started
        for version in kept_versions.list_versions():
            committed_at = self.warehouse.committed_at(table, version)
            oldest = min(oldest, committed_at or self.started)
        compaction, is_busy = self._compact_table(table)
        if not self.dry_run:
            # A reader of a kept version needs the entries of the log since that version.
            keeps_only_recent = oldest > self.started - _LOG_RETENTION
            self.warehouse.write_checkpoint(table, removes_expired=keeps_only_recent)
        kept_files = self._kept_files(kept_versions)
        vacuumed = self.warehouse.vacuum_table(table, kept_files, dry_run=self.dry_run)
        return MaintenanceResult(
            table,
            before=compaction.before,
            after=compaction.after,
            removed=vacuumed.files,
            freed=vacuumed.bytes,
            busy=is_busy,
            spared=str(kept_versions),
        )

    def _find_kept_versions(self, table: str, head: Head) -> _KeptVersions:
        read_version = max(self.read_versions.get(head.table_id, head.version), 0)
        unread_since = None
        if read_version < head.version:
            unread_since = self.warehouse.committed_at(table, read_version)
        return _KeptVersions(
            recorded=sorted(self.recorded_versions[table]),
            backup=self.backups.get(table),
            read_version=read_version,
            unread_since=unread_since,
        )

    def _compact_table(self, table: str) -> tuple[CompactionResult, bool]:
        """Compact a table. Return the result, and whether other writers prevented it."""
        file_bytes = thresholds.COMPACTED_FILE_BYTES
        try:
            return self.warehouse.compact_table(table, file_bytes, dry_run=self.dry_run), False
        except ConflictError:
            compaction = self.warehouse.compact_table(table, file_bytes, dry_run=True)
            return compaction._replace(after=compaction.before), True

    def _kept_files(self, kept_versions: _KeptVersions) -> KeptFiles:
        removed_since = self.started - self.retention + _SLACK
        if kept_versions.unread_since is not None:
            removed_since = min(removed_since, kept_versions.unread_since)
        # A file may be written long before the commit that adds it.
        written_since = min(removed_since, (kept_versions.unread_since or self.started) - DAY)
        return KeptFiles(removed_since, written_since, tuple(kept_versions.list_versions()))


def _remove_scratch_folders(
    warehouse: Warehouse, oldest_kept: int, *, dry_run: bool
) -> MaintenanceResult:
    """Remove scratch folders last written before an instant: killed processes left them behind."""
    system, folder = file_system(warehouse.path_of(SCRATCH))
    removed = 0
    freed = 0
    for entry in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        infos = [entry]
        if entry.type == pafs.FileType.Directory:
            infos += system.get_file_info(pafs.FileSelector(entry.path, recursive=True))
        if max(written_at(info) for info in infos) >= oldest_kept:
            continue
        files = [info for info in infos if info.type == pafs.FileType.File]
        removed += len(files)
        freed += sum(info.size for info in files)
        if not dry_run:
            system.delete_dir(entry.path)
    return MaintenanceResult(SCRATCH, removed=removed, freed=freed)


_T = TypeVar("_T")


def _run_unless_dropped(warehouse: Warehouse, table: str, work: Callable[[str], _T]) -> _T | None:
    """Return `work(table)`; None if the table was dropped in the meantime."""
    try:
        return work(table)
    except Exception:
        if warehouse.find_head(table) is None:
            return None
        raise


def _versions_for_rollback(
    warehouse: Warehouse, tables: Iterable[TableName], started_since: int
) -> dict[str, int]:
    """Return, by table, the version that a rollback of the last promotion restores.

    A table is missing if no promotion can be rolled back, or if the last one started before
    `started_since` (microseconds).
    """

    def find_backup(table: str) -> dict[str, int]:
        state = State.from_table(warehouse, table)
        promotion_number = state.read_last_commit().promoted
        if promotion_number <= state.newest_forgotten_backup():
            return {}
        promotion = state.read_commit(promotion_number)
        if not isinstance(promotion, Promotion) or promotion.started < started_since:
            return {}
        return dict(promotion.kept)

    backups = dict[str, int]()
    for table in tables:
        if table.role is Role.STATE:
            backups |= _run_unless_dropped(warehouse, table, find_backup) or {}
    return backups


def _versions_in_arrivals(warehouse: Warehouse, tables: Iterable[TableName]) -> dict[str, set[int]]:
    """Return the versions that arrivals recorded, by lookup table."""
    versions: dict[str, set[int]] = defaultdict(set)
    for table in tables:
        if table.role is not Role.TIMELINE:
            continue
        arrivals = _run_unless_dropped(warehouse, table, warehouse.load_rows)
        if arrivals is None:
            continue
        for text in arrivals["lookups"].unique().to_pylist():
            for lookup_table, version in json.loads(text).items():
                versions[lookup_table].add(int(version))
    return versions
