"""Open the tables of a folder for the check, each once, and note those that are broken."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector

from tidemark.base.errors import summarize_error
from tidemark.define.source import Source
from tidemark.define.tables import TableName
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.integrity.damage import Damage
from tidemark.store.integrity.file_faults import find_broken_entry, find_broken_file
from tidemark.store.integrity.vouching import arrivals_app, digest_files, files_app, version_app

_READERS = ("_state", "_timeline")
"""The endings of the names of tables that record which arrivals were read."""


class CheckedTables:
    """The tables of a folder, each opened once, so that all checks compare the same versions.

    `broken` holds, by table name, the tables whose newest commit or data files are damaged.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.broken: dict[str, Damage] = {}
        # An entry of a transaction log may have been lost since this process copied it.
        self._tables = OpenTables(folder, verifies=True)
        self._opened: dict[str, DeltaTable | None] = {}

    def pin_all_versions(self) -> AbstractContextManager[None]:
        """Let tables that do not exist be no requests to an object store in a `with` block."""
        return self._tables.pin_all_versions()

    def open_table(self, table: str, asset: str | None = None) -> DeltaTable | None:
        """Open a table; None if it does not exist or is damaged.

        Args:
            asset: the asset to which the table belongs, for the entry in `broken`.
        """
        if table not in self._opened:
            self._opened[table] = self._open_intact(table, asset)
        return self._opened[table]

    def opened_version(self, table: str) -> int:
        """Return the version of a table that `open_table` has opened.

        Return -1 if the table is missing or damaged.
        """
        opened = self._opened.get(table)
        if opened is None:
            return -1
        return opened.version()

    def transaction_version(self, table: str, app: str) -> int | None:
        """Return an application's newest version in a table that `open_table` has opened.

        Return None if it has none, or if the table is missing or damaged.
        """
        opened = self._opened.get(table)
        if opened is None:
            return None
        return opened.transaction_version(app)

    def find_readers(self, source: Source) -> Iterator[tuple[TableName, int]]:
        """Yield each table that records arrivals of a source, with the newest arrival it has read.

        All assets and derived sources are found, even if no domain defines them.
        """
        system, path = file_system(self.folder)
        existing = system.get_file_info(FileSelector(path, allow_not_found=True))
        # The suffix only avoids opening every table: the record identifies a reader.
        names = sorted(info.base_name for info in existing if info.base_name.endswith(_READERS))
        for name in names:
            opened = self.open_table(name)
            if opened is None:
                continue
            reader = TableName.from_properties(name, opened.metadata().configuration)
            newest = opened.transaction_version(arrivals_app(source))
            if reader is not None and newest is not None:
                yield reader, newest

    def find_lost_commits(
        self, voucher: DeltaTable, name: str, app: str, table: str, asset: str | None = None
    ) -> Iterator[Damage]:
        """Yield the damage if a table lacks commits for which another table vouches.

        Args:
            voucher, name: the table that vouches, and its name.
            app: the application id of the commits that vouch.
            table: the name of a table that `open_table` has opened.
            asset: the asset to which the table belongs.
        """
        vouched = voucher.transaction_version(version_app(app, table))
        if vouched is None or table in self.broken:
            return
        version = self.opened_version(table)
        if version < vouched:
            yield Damage(table, describe_lag(version, vouched, name), asset)
            return
        recorded_digest = voucher.transaction_version(files_app(app, table))
        opened = self._open_version(table, vouched)
        if recorded_digest is None or opened is None:
            return
        if digest_files(opened) != recorded_digest:
            yield Damage(
                table,
                f"has other data files at version {vouched} than '{name}' has recorded: one of "
                "its commits was lost or replaced",
                asset,
            )

    def _open_intact(self, table: str, asset: str | None) -> DeltaTable | None:
        address = f"{self.folder}/{table}"
        is_local = "://" not in address
        problem = find_broken_entry(address) if is_local else None
        opened = None
        if problem is None:
            try:
                opened = self._tables.open_newest(table)
            except TableNotFoundError:
                return None
            except DeltaError as error:
                problem = f"can't be read: {summarize_error(error)}"
        if opened is not None and is_local:
            problem = find_broken_file(address, opened)
        if problem is not None:
            self.broken[table] = Damage(table, problem, asset)
            return None
        return opened

    def _open_version(self, table: str, version: int) -> DeltaTable | None:
        """Open a version of a table; None if its transaction log does not reach back that far."""
        opened = self._opened.get(table)
        if opened is None or opened.version() == version:
            return opened
        try:
            return self._tables.open_version(table, version)
        except DeltaError:
            return None


def describe_lag(version: int, vouched: int, voucher: str) -> str:
    """Return the problem of a table with a version that another table's commits do not allow."""
    state = "does not exist" if version < 0 else f"is at version {version}"
    return f"{state}, but '{voucher}' depends on its version {vouched}"
