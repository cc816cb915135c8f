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

The copies are in a private folder of this process, which the process removes when it ends. If it
was killed, the next process of this user removes the folder.
"""

import atexit
import json
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock, RLock
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.base.errors import ConflictError
from tidemark.base.files import locks
from tidemark.base.files.private import make_folder
from tidemark.engine.launch import cache
from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG, added_files
from tidemark.store.committers.object_files import PAGE_FILES, ListedFile, ObjectFolder

_CHECKPOINT = ".checkpoint.parquet"

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

    def __init__(self, folder: "_PrivateFolder", url: str, version: int | None = None) -> None:
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
        self._folder: _PrivateFolder | None = None
        self._first = 0
        self._version = -1
        self._tag = ""

    def open_newest(self, copied: CopiedTable | None, *, refresh: bool = True) -> CopiedTable:
        """Return the table at its newest version.

        Args:
            copied: the result of an earlier call in the same thread, which is updated if possible.
            refresh: false to return the newest version that this process knows, without a request.

        Raises:
            TableNotFoundError: the table does not exist.
        """
        with self._lock:
            folder = self._folder if not refresh and self._folder else self._copy_new_commits()
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
        return DeltaTable(self._url, version)

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
        staged = _PrivateFolder()
        with self._lock:
            if self._folder is None or self._version != version:
                raise _conflict_error(self._url)
            for entry in self._folder.log.iterdir():
                (staged.log / entry.name).hardlink_to(entry)
        opened = CopiedTable(staged, self._url)
        if with_rows:
            paths = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
            for path, content in zip(paths, self._remote.read_cached(paths), strict=True):
                copied = staged.path / path
                copied.parent.mkdir(parents=True, exist_ok=True)
                copied.write_bytes(content)
        yield opened
        if opened.version() != version:
            self._publish_commit(staged, version + 1)

    @contextmanager
    def stage_first(self) -> Iterator[Path]:
        """Yield the folder in which to create the table, if it does not exist.

        Raises:
            ConflictError: another writer has created the table.
        """
        staged = _PrivateFolder()
        yield staged.path
        self._publish_commit(staged, 0)

    def _publish_commit(self, staged: "_PrivateFolder", version: int) -> None:
        """Create a commit in the store, after its data files."""
        name = _entry_name(version)
        content = (staged.log / name).read_bytes()
        for path in added_files(content.decode()):
            # The engine's workers have written their files into the store already.
            if (staged.path / path).exists():
                self._remote.write_cached(path, staged.path / path)
        tag = self._create_entry(f"{LOG}/{name}", content)
        checkpoint = staged.log / f"{version:020}{_CHECKPOINT}"
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

    def _add_to_copy(self, staged: "_PrivateFolder", version: int, tag: str) -> None:
        """Add a commit of this process to the copy."""
        checkpoint = f"{version:020}{_CHECKPOINT}"
        if (staged.log / checkpoint).exists():
            self._folder = _PrivateFolder()
            self._first = version
            (self._folder.log / checkpoint).hardlink_to(staged.log / checkpoint)
        elif self._folder is None:
            self._folder = _PrivateFolder()
            self._first = version
        name = _entry_name(version)
        (self._folder.log / name).hardlink_to(staged.log / name)
        self._version = version
        self._tag = tag

    def _copy_new_commits(self) -> "_PrivateFolder":
        """Copy the new commits, and return the folder of the copy."""
        if self._folder is not None and self._version - self._first < _COPIED_COMMITS:
            # This name is just before the name of the newest known commit.
            files = chain.from_iterable(self._remote.list_after(LOG, f"{self._version:020}.j"))
            listing = _read_listing(files)
            newest = listing.commits.pop(self._version, None)
            versions = sorted(listing.commits)
            without_gap = range(self._version + 1, self._version + 1 + len(versions))
            if newest is not None and newest.tag == self._tag and versions == [*without_gap]:
                self._copy_files(self._folder, [listing.commits[version] for version in versions])
                if versions:
                    self._version = versions[-1]
                    self._tag = listing.commits[self._version].tag
                return self._folder
        return self._copy_all()

    def _copy_all(self) -> "_PrivateFolder":
        """Copy the newest checkpoint and all later commits into a new folder, and return it."""
        self._folder = None
        for attempt in range(_ATTEMPTS):
            listing = self._list_all()
            if not listing.commits:
                self._version = -1
                raise TableNotFoundError(f"There is no table at {self._url}")
            first = max(listing.checkpoints, default=0)
            newest = max(listing.commits)
            needed = [file for version, file in listing.commits.items() if version >= first]
            folder = _PrivateFolder()
            try:
                self._copy_files(folder, [*listing.checkpoints.get(first, []), *needed])
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

    def _list_all(self) -> "_Listing":
        """List the transaction log, or the part from the newest checkpoint on if it is long."""
        page = next(self._remote.list_after(LOG), [])
        if len(page) < PAGE_FILES:
            return _read_listing(page)
        try:
            (content,) = self._remote.read_files([f"{LOG}/{LAST_CHECKPOINT}"])
            start = f"{json.loads(content)['version']:020}"
        except FileNotFoundError:
            start = None
        return _read_listing(chain.from_iterable(self._remote.list_after(LOG, start)))

    def _copy_files(self, folder: "_PrivateFolder", files: Sequence[ListedFile]) -> None:
        contents = self._remote.read_files([f"{LOG}/{file.name}" for file in files])
        for file, content in zip(files, contents, strict=True):
            (folder.log / file.name).write_bytes(content)


class _Listing(NamedTuple):
    """The files of a transaction log, by version.

    Args:
        checkpoints: the files of each checkpoint. Spark can write a checkpoint into several files.
    """

    commits: dict[int, ListedFile]
    checkpoints: dict[int, list[ListedFile]]


def _read_listing(files: Iterable[ListedFile]) -> _Listing:
    commits = dict[int, ListedFile]()
    checkpoints = dict[int, list[ListedFile]]()
    for file in files:
        number, _, kind = file.name.partition(".")
        if not number.isdigit():
            continue
        if kind == "json":
            commits[int(number)] = file
        elif kind.startswith("checkpoint."):
            checkpoints.setdefault(int(number), []).append(file)
    return _Listing(commits, checkpoints)


class _PrivateFolder:
    """A private folder with the transaction log of a table, removed with this object."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(dir=_process_folder(os.getpid())))
        self.log = self.path / LOG
        self.log.mkdir()
        weakref.finalize(self, _remove_own_folder, self.path, os.getpid())


@lru_cache(maxsize=1)
def _process_folder(process: int) -> Path:
    """Create the folder of this process for copies. Remove those of processes that have ended.

    Args:
        process: the process id. A forked process needs a folder of its own.
    """
    parent = make_folder(cache.cache_folder("transaction_logs"))
    for leftover in parent.iterdir():
        _lock_and_remove(leftover)
    while True:
        folder = Path(mkdtemp(prefix=f"{process}-", dir=parent))
        # The lock ends with the process, however that ends.
        handle = os.open(folder, os.O_RDONLY)
        # Another process may have removed the folder before this one locked it.
        if locks.take_lock(handle) and folder.exists():
            break
        os.close(handle)
    atexit.register(_remove_own_folder, folder, process)
    return folder


def _lock_and_remove(folder: Path) -> None:
    """Remove a folder if no living process holds its lock."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        if locks.try_take_lock(handle):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


def _remove_own_folder(folder: Path, process: int) -> None:
    """Remove a folder that this process has created, not one of the process that it forked from."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


_copies: dict[tuple[int, str], LogCopy] = {}
_copies_lock = Lock()


def shared_copy(url: str) -> LogCopy:
    """Return this process's copy of the transaction log of a table."""
    with _copies_lock:
        key = os.getpid(), url
        copy = _copies.get(key)
        if copy is None:
            copy = _copies[key] = LogCopy(url)
        return copy


def _entry_name(version: int) -> str:
    return f"{version:020}.json"


def _conflict_error(url: str) -> ConflictError:
    return ConflictError(f"Another commit to {url} came first.")
