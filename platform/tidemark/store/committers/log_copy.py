"""Keep copies of transaction logs in object stores on this machine, one copy for each table.

A request to an object store takes about 30 ms, and delta-rs sends many: opening a table reads each
commit since the last checkpoint twice, and each question about a transaction reads them again. With
a copy, the questions are answered without a request:

| access | requests |
| --- | --- |
| unchanged table | one listing, which begins with the newest known commit |
| table with new commits | one more for each of them |
| first access | the listing, the newest checkpoint, and each commit after it |
| append | the listing, the data file, and the commit |

The tag of the newest known commit shows whether the table was recreated or restored: its log is
then copied again.

A commit is written to a separate copy of the log first, and is then created in the store. If
another writer has created a commit with this number, the store refuses, and the commit never took
effect.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.base.errors import ConflictError
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.copy_folders import CopyFolder
from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG, added_files
from tidemark.store.committers.log_listing import (
    LogListing,
    checkpoint_name,
    entry_name,
    list_from,
    list_log,
)
from tidemark.store.committers.object_files import ListedFile, ObjectFolder

_COPIED_COMMITS = 25
"""The number of commits after which a log is copied again, from its newest checkpoint on."""

_ATTEMPTS = 3


class CopiedTable(DeltaTable):
    """A version of a table in an object store, with a copy of its transaction log.

    delta-rs can't read the rows of the table through this object, because the data files are not
    copied.

    Args:
        folder: the folder of the copy.
        url: the address of the table.
        version: the version to open; None for the newest one.
    """

    def __init__(self, folder: CopyFolder, url: str, version: int | None = None) -> None:
        super().__init__(folder.path, version)
        self.folder = folder
        self.tag = ""
        """The tag of the version's commit in the store; empty if it is not known."""
        self._url = url

    @property
    def table_uri(self) -> str:
        return self._url


class LogCopy:
    """The copy of the transaction log of one table. All threads of a process share it.

    Args:
        url: the address of the table.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._remote = ObjectFolder(url)
        self._lock = RLock()
        self._folder: CopyFolder | None = None
        self._first = 0
        self._version = -1
        self._tag = ""
        self._tags = dict[str, str]()
        """The tags of the files in the copy, by name; empty for a file whose tag is not known."""

    def open_newest(
        self, copied: CopiedTable | None, *, refresh: bool = True, verify: bool = False
    ) -> CopiedTable:
        """Return the table at its newest version.

        Args:
            copied: the result of an earlier call in the same thread, which is updated if possible.
            refresh: false to return the newest version that this process knows, without a request.
            verify: true to copy the log again if the store lacks a file of the copy, or has another
                one.

        Raises:
            TableNotFoundError: the table does not exist.
        """
        with self._lock:
            folder = self._folder
            if refresh or folder is None:
                folder = self._copy_new_commits(verify=verify)
            if copied is None or copied.folder is not folder:
                copied = CopiedTable(folder, self._url)
            elif copied.version() != self._version:
                copied.update_incremental()
            copied.tag = self._tag
            return copied

    def open_version(self, version: int) -> DeltaTable:
        """Return an earlier version of the table: from the copy if possible, or from the store."""
        with self._lock:
            folder = self._folder
        if folder is not None:
            with suppress(DeltaError):
                return CopiedTable(folder, self._url, version)
        return open_delta_table(self._url, version)

    def has_table(self) -> bool:
        """Return whether the table exists."""
        try:
            with self._lock:
                self._copy_new_commits()
        except TableNotFoundError:
            return False
        return True

    @contextmanager
    def stage_commit(self, version: int, *, with_rows: bool = False) -> Iterator[CopiedTable]:
        """Yield the table with a separate copy of its log, for the next commit.

        At the end of the block, the commit is created in the store.

        Args:
            version: the version on which the commit is based.
            with_rows: true to copy the data files, too, so that delta-rs can read their rows.

        Raises:
            ConflictError: another commit came first; nothing was changed.
        """
        staged = CopyFolder()
        with self._lock:
            if self._folder is None or self._version != version:
                raise _conflict_error(self._url)
            for entry in self._folder.log.iterdir():
                (staged.log / entry.name).hardlink_to(entry)
        opened = CopiedTable(staged, self._url)
        if with_rows:
            self._copy_data_files(opened)
        yield opened
        if opened.version() != version:
            self._publish_commit(staged, version + 1)

    @contextmanager
    def stage_first(self) -> Iterator[Path]:
        """Yield the folder in which to create the table, if it does not exist.

        Raises:
            ConflictError: another writer has created the table.
        """
        staged = CopyFolder()
        yield staged.path
        self._publish_commit(staged, 0)

    def _copy_data_files(self, opened: CopiedTable) -> None:
        paths = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
        contents = self._remote.read_cached(paths)
        for path, content in zip(paths, contents, strict=True):
            file = opened.folder.path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def _publish_commit(self, staged: CopyFolder, version: int) -> None:
        """Create a commit in the store, after its data files."""
        name = entry_name(version)
        content = (staged.log / name).read_bytes()
        for path in added_files(content.decode()):
            # The engine's workers have written their files into the store already.
            if (staged.path / path).exists():
                self._remote.write_cached(path, staged.path / path)
        tag = self._create_entry(f"{LOG}/{name}", content)
        checkpoint = staged.log / checkpoint_name(version)
        with self._lock:
            if self._version == version - 1:
                self._add_to_copy(staged, version, tag)
        if checkpoint.exists():
            # Readers use the commits if one of the two files is missing.
            with suppress(OSError):
                self._remote.write_file(f"{LOG}/{checkpoint.name}", checkpoint)
                newest = staged.log / LAST_CHECKPOINT
                self._remote.write_file(f"{LOG}/{LAST_CHECKPOINT}", newest)

    def _create_entry(self, path: str, content: bytes) -> str:
        """Create the file of a commit, and return its tag."""
        tag = self._remote.create_file(path, content)
        # The client repeats a request without an answer. If the first one took effect, the store
        # refuses the second one.
        if tag is None and self._remote.read_files([path]) != [content]:
            raise _conflict_error(self._url)
        return tag or ""

    def _add_to_copy(self, staged: CopyFolder, version: int, tag: str) -> None:
        """Add a commit of this process to the copy."""
        checkpoint = staged.log / checkpoint_name(version)
        has_checkpoint = checkpoint.exists()
        if self._folder is None or has_checkpoint:
            self._folder = CopyFolder()
            self._first = version
            self._tags = {}
        if has_checkpoint:
            (self._folder.log / checkpoint.name).hardlink_to(checkpoint)
        name = entry_name(version)
        (self._folder.log / name).hardlink_to(staged.log / name)
        self._tags[name] = tag
        self._version = version
        self._tag = tag

    def _copy_new_commits(self, *, verify: bool = False) -> CopyFolder:
        """Copy the new commits, and return the folder of the copy."""
        if self._folder is None or self._version - self._first >= _COPIED_COMMITS:
            return self._copy_all()
        if verify:
            listing = list_from(self._remote, self._first, with_checkpoint=True)
            if not self._has_all_files(listing):
                return self._copy_all()
        else:
            listing = list_from(self._remote, self._version)
        newest_known = listing.commits.pop(self._version, None)
        has_same_history = newest_known is not None and newest_known.tag == self._tag
        next_version = self._version + 1
        versions = sorted(version for version in listing.commits if version > self._version)
        has_gap = versions != list(range(next_version, next_version + len(versions)))
        if not has_same_history or has_gap:
            return self._copy_all()
        self._copy_files(self._folder, [listing.commits[version] for version in versions])
        if versions:
            self._version = versions[-1]
            self._tag = listing.commits[self._version].tag
        return self._folder

    def _has_all_files(self, listing: LogListing) -> bool:
        """Return whether a listing from the first version on has all files of the copy."""
        listed = {file.name: file.tag for file in _select_files_from(listing, self._first)}
        return all(listed.get(name) == tag for name, tag in self._tags.items())

    def _copy_all(self) -> CopyFolder:
        """Copy the newest checkpoint and all later commits into a new folder, and return it."""
        self._folder = None
        for attempt in range(_ATTEMPTS):
            listing = list_log(self._remote)
            if not listing.commits:
                self._version = -1
                raise TableNotFoundError(f"There is no table at {self._url}")
            first = max(listing.checkpoints, default=0)
            newest = max(listing.commits)
            folder = CopyFolder()
            self._tags = {}
            try:
                self._copy_files(folder, _select_files_from(listing, first))
            except FileNotFoundError:
                # Maintenance has removed entries after the listing.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._folder = folder
            self._first = first
            self._version = newest
            self._tag = listing.commits[newest].tag
            return folder
        raise AssertionError

    def _copy_files(self, folder: CopyFolder, files: Sequence[ListedFile]) -> None:
        contents = self._remote.read_files([f"{LOG}/{file.name}" for file in files])
        for file, content in zip(files, contents, strict=True):
            (folder.log / file.name).write_bytes(content)
            self._tags[file.name] = file.tag


def _select_files_from(listing: LogListing, first_version: int) -> list[ListedFile]:
    """Return the files of a checkpoint, and of the commits from its version on."""
    files = list(listing.checkpoints.get(first_version, []))
    for version, commit in listing.commits.items():
        if version >= first_version:
            files.append(commit)
    return files


_copies: dict[tuple[int, str], LogCopy] = {}
"""The copies by process, because a forked process inherits those of its parent, and by address."""

_copies_lock = Lock()


def shared_copy(url: str) -> LogCopy:
    """Return this process's copy of the transaction log of a table."""
    with _copies_lock:
        key = os.getpid(), url
        copy = _copies.get(key)
        if copy is None:
            copy = LogCopy(url)
            _copies[key] = copy
        return copy


def _conflict_error(url: str) -> ConflictError:
    return ConflictError(f"Another commit to {url} came first.")
