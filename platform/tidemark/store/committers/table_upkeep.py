"""Compact tables, checkpoint and trim their transaction logs, and vacuum them."""

from contextlib import suppress

from tidemark.base import thresholds
from tidemark.base.errors import ConflictError
from tidemark.store.committers import durable
from tidemark.store.committers.compaction import compact_files
from tidemark.store.committers.conflicts import wait_after_conflict
from tidemark.store.committers.leftovers import remove_leftovers, shorten_log, trim_log
from tidemark.store.committers.table_access import TableAccess
from tidemark.store.committers.values import CompactionResult, KeptFiles, VacuumResult
from tidemark.store.refusals import translate_refusals

_ATTEMPTS = 4


class TableUpkeep(TableAccess):
    """Keeps the files and the transaction logs of the tables below a folder few and small."""

    def compact_table(
        self, table: str, target_bytes: int, *, dry_run: bool = False
    ) -> CompactionResult:
        """Rewrite small files into files of a target size; large files stay as they are.

        With `dry_run`, only count the files before and after.

        Raises:
            ConflictError: other writers kept changing the table; nothing was changed.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self._open_for_commit(table) as opened:
                    return compact_files(opened, target_bytes, dry_run=dry_run)
            except ConflictError:
                wait_after_conflict(attempt)
        raise ConflictError(
            f"Table '{table}' is busy: its compaction is postponed to the next maintenance."
        )

    def write_checkpoint(self, table: str, *, removes_expired: bool) -> None:
        """Write a checkpoint of the transaction log.

        Args:
            removes_expired: true to remove the expired entries of the log.
        """
        with translate_refusals(f"write table '{table}'"):
            opened = self._tables.open_separately(table)
            opened.create_checkpoint()
            durable.sync_log(self.path_of(table))
            if removes_expired:
                opened.cleanup_metadata()

    def trim_log(self, table: str) -> None:
        """Reduce the transaction log to the newest version."""
        with translate_refusals(f"write table '{table}'"):
            opened = self._tables.open_separately(table)
            opened.create_checkpoint()
            # Remove the old entries only after the checkpoint is on the disk.
            durable.sync_log(self.path_of(table))
            trim_log(opened)
        self._tables.close_table(table)

    def shorten_log(self, table: str, period_start: int, keep: int | None = None) -> None:
        """Remove the entries of the transaction log that a reader of recent versions ignores.

        Args:
            period_start, keep: as for `leftovers.shorten_log`.
        """
        with translate_refusals(f"write table '{table}'"):
            shorten_log(self._tables.open_newest(table), period_start, keep)

    def vacuum_table(
        self, table: str, kept_files: KeptFiles, *, dry_run: bool = False
    ) -> VacuumResult:
        """Remove the files that neither the table nor `kept_files` needs.

        With `dry_run`, only count them.
        """
        with translate_refusals(f"vacuum table '{table}'"):
            return remove_leftovers(
                self._tables.open_separately(table),
                kept_files,
                lambda number: self._tables.open_version(table, number),
                dry_run=dry_run,
            )

    def _compact_if_due(self, table: str, version: int) -> None:
        """Compact small files every `COMPACTION_COMMITS` commits: readers then open fewer files."""
        if version == 0 or version % thresholds.COMPACTION_COMMITS:
            return
        # The commit is done even if the compaction fails. `maintain_tables` reports the error.
        with suppress(Exception), self._open_for_commit(table) as opened:
            compact_files(
                opened, thresholds.INTERIM_FILE_BYTES, max_files=thresholds.COMPACTION_FILES
            )
