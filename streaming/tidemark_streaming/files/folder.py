"""List the files in a folder and its subfolders, and detect files that were changed or renamed."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from tidemark.base.errors import DataError

_CACHED_CHECKSUMS = 1 << 16

_READ_BYTES = 1 << 20

_WINDOWS_FILES = frozenset({"desktop.ini", "ehthumbs.db", "thumbs.db"})
"""Names of files, in lowercase, that Windows Explorer creates."""

_Identity = tuple[int, int, int, str]
"""The inode, the size, the modification time, and the checksum of a file."""

_Facts = tuple[int, int, int, int]
"""The size, the modification time, the change time, and the inode of a file. While they stay the
same, the content stays the same."""


@dataclass(frozen=True, order=True)
class File:
    """A file, ordered by modification time, then by name.

    Args:
        modified: the modification time, in nanoseconds. Programs can set it.
        name: the path below the folder, with `/` between its parts.
        changed: the change time of the inode, in nanoseconds. Only the file system sets it.
    """

    modified: int
    name: str
    size: int
    changed: int
    inode: int
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def checksum(self) -> str:
        """The SHA-256 of the content."""
        return _checksum(self.path, self.facts)

    @property
    def facts(self) -> _Facts:
        return self.size, self.modified, self.changed, self.inode

    @property
    def position(self) -> dict[str, Any]:
        """The position of the file's arrival, with which `has_changed` compares the file later."""
        return {
            "file": self.name,
            "bytes": self.size,
            "modified": self.modified,
            "changed": self.changed,
            "inode": self.inode,
            "sha256": self.checksum,
        }

    @property
    def identity(self) -> _Identity:
        """The properties that stay the same if the file is renamed or moved."""
        return self.inode, self.size, self.modified, self.checksum

    def has_changed(self, position: Mapping[str, Any]) -> bool:
        """Return whether the content differs from the content that `position` describes.

        The content is read only if the size is the same and another fact is not. A program can
        replace a file by one with the same size and modification time, but not with the same
        change time and inode.
        """
        if self.size != position["bytes"]:
            return True
        return self.facts != _facts_of(position) and self.checksum != position["sha256"]


def list_files(folder: Path, names: Sequence[str] = ()) -> list[File]:
    """List the files of a folder and its subfolders, in the order in which they arrive.

    Files and subfolders whose names begin with `.` or `_` are left out, and so are the files that
    Windows and its programs create next to a user's files. A symbolic link is left out if its
    target is listed anyway.

    Args:
        names: patterns of file names, as in `*.csv`. If there are any, all other files are left
            out.

    Raises:
        OSError: the folder does not exist or can't be read.
        DataError: the name of a file is not UTF-8.
    """
    with os.scandir(folder) as entries:
        files = _files(folder, "", entries, (os.path.realpath(folder),))
        return sorted(file for file in files if not names or _matches(file.name, names))


def find_displaced(ingested: Mapping[str, Mapping[str, Any]], files: Iterable[File]) -> set[str]:
    """Return the names of ingested files that no longer exist, or of which a fact has changed.

    Such a file may have been renamed or moved. If so, a file in `files` has its identity.

    Args:
        ingested: the positions of ingested files, by name.
        files: the files that exist now.
    """
    present = {file.name: file.facts for file in files}
    return {name for name, position in ingested.items() if present.get(name) != _facts_of(position)}


def identity_of(position: Mapping[str, Any]) -> _Identity:
    """Return the `File.identity` that an ingested file had, from the position of its arrival."""
    return position.get("inode", 0), position["bytes"], position["modified"], position["sha256"]


def find_beginning(file: File, deleted: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the position of a deleted file whose content is at the beginning of a new file.

    Such a file is one that was ingested while it was being written, and that was then completed and
    renamed. It may also be a copy of a file that was ingested.

    Args:
        deleted: the positions of ingested files that no longer exist.
    """
    positions = [p for p in deleted if 0 < p["bytes"] <= file.size]
    positions.sort(key=itemgetter("bytes"))
    if not positions:
        return None
    checksum = hashlib.sha256()
    checked_bytes = 0
    with file.path.open("rb") as content:
        for position in positions:
            while checked_bytes < position["bytes"]:
                block = content.read(min(_READ_BYTES, position["bytes"] - checked_bytes))
                if not block:
                    return None
                checksum.update(block)
                checked_bytes += len(block)
            is_beginning = checksum.copy().hexdigest() == position["sha256"]
            # Another file may have the same content, but hardly the same modification time too.
            is_distinct = checked_bytes == file.size and file.modified != position["modified"]
            if is_beginning and not is_distinct:
                return position
    return None


def is_unchanged(folder: Path, position: Mapping[str, Any]) -> bool:
    """Return whether a file still has the facts that `position` describes.

    Raises:
        FileNotFoundError: it no longer exists.
    """
    status = (folder / position["file"]).stat()
    facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return facts == _facts_of(position)


def _facts_of(position: Mapping[str, Any]) -> _Facts:
    return (
        position["bytes"],
        position["modified"],
        position.get("changed", 0),
        position.get("inode", 0),
    )


def _files(
    folder: Path, prefix: str, entries: Iterable[os.DirEntry[str]], above: tuple[str, ...]
) -> Iterator[File]:
    """List a folder, which is `folder` or is below it, and yield its files and those of its
    subfolders.

    Args:
        folder: the top folder, to which the names of the files are relative.
        prefix: the path of the listed folder relative to `folder`, with a `/` at its end; empty for
            `folder` itself.
        entries: the entries of the listed folder.
        above: the real paths from `folder` down to the listed folder, including both.
    """
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if _is_created_by_windows(entry.name):
            continue
        if _is_hidden(entry.name) or (entry.is_symlink() and _is_listed(entry, above)):
            continue
        # Files that were renamed or deleted since their folder was listed are skipped.
        with suppress(FileNotFoundError):
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                with os.scandir(entry.path) as below:
                    yield from _files(folder, f"{name}/", below, (*above, real))
            elif entry.is_file():
                _check_name(folder, name)
                status = entry.stat()
                yield File(
                    status.st_mtime_ns,
                    name,
                    status.st_size,
                    status.st_ctime_ns,
                    status.st_ino,
                    folder,
                )


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_created_by_windows(name: str) -> bool:
    # `~$` begins the name of the file with which Excel marks an open file.
    return name.startswith("~$") or name.lower() in _WINDOWS_FILES


def _matches(name: str, patterns: Sequence[str]) -> bool:
    last_part = name.rpartition("/")[2]
    return any(fnmatchcase(last_part, pattern) for pattern in patterns)


def _is_listed(link: os.DirEntry[str], above: tuple[str, ...]) -> bool:
    """Return whether a link leads to a file or folder that is listed anyway."""
    target = os.path.realpath(link.path)
    # The relative path of a target outside the first folder begins with two periods, so that the
    # target counts as hidden.
    parts = Path(os.path.relpath(target, above[0])).parts
    return target in above or not any(map(_is_hidden, parts))


def _check_name(folder: Path, name: str) -> None:
    """Refuse a file name that is not UTF-8, because a table can't store it."""
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if shown != name:
        raise DataError(
            f"The file '{folder}/{shown}' can't be ingested: its name is not UTF-8. Rename the "
            "file or move it out of the folder."
        )


@lru_cache(_CACHED_CHECKSUMS)
def _checksum(path: Path, facts: _Facts) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
