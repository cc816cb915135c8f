"""List the files in a folder and its subfolders, and detect files that were changed or renamed."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidemark.base.errors import DataError

_CACHED_CHECKSUMS = 1 << 16

_Identity = tuple[int, int, str]
"""The size, the modification time, and the checksum of a file."""


@dataclass(frozen=True, order=True)
class File:
    """A file, ordered by modification time, then by name.

    Args:
        modified: the modification time, in nanoseconds.
        name: the path below the folder, with `/` between its parts.
    """

    modified: int
    name: str
    size: int
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def checksum(self) -> str:
        """The SHA-256 of the content."""
        return _checksum(self.path, self.modified, self.size)

    @property
    def position(self) -> dict[str, Any]:
        """The position of the file's arrival, with which `has_changed` compares the file later."""
        return {
            "file": self.name,
            "bytes": self.size,
            "modified": self.modified,
            "sha256": self.checksum,
        }

    @property
    def identity(self) -> _Identity:
        """The properties that stay the same if the file is renamed or moved."""
        return self.size, self.modified, self.checksum

    def has_changed(self, position: Mapping[str, Any]) -> bool:
        """Return whether the content differs from the content that `position` describes.

        The content is read only if the size is the same and the modification time is not.
        """
        if self.size != position["bytes"]:
            return True
        return self.modified != position["modified"] and self.checksum != position["sha256"]


def list_files(folder: Path) -> list[File]:
    """List the files of a folder and its subfolders, in the order in which they arrive.

    Files and subfolders whose names begin with `.` or `_` are left out. A symbolic link is left out
    if its target is listed anyway.

    Raises:
        OSError: the folder does not exist or can't be read.
        DataError: the name of a file is not UTF-8.
    """
    with os.scandir(folder) as entries:
        return sorted(_files(folder, "", entries, (os.path.realpath(folder),)))


def find_displaced(ingested: Mapping[str, Mapping[str, Any]], files: Iterable[File]) -> set[str]:
    """Return the names of ingested files that no longer exist, or whose size or modification time
    has changed.

    Such a file may have been renamed or moved. If so, a file in `files` has its identity.

    Args:
        ingested: the positions of ingested files, by name.
        files: the files that exist now.
    """
    looks = {file.name: (file.size, file.modified) for file in files}
    return {n for n, p in ingested.items() if looks.get(n) != (p["bytes"], p["modified"])}


def identity_of(position: Mapping[str, Any]) -> _Identity:
    """Return the `File.identity` that an ingested file had, from the position of its arrival."""
    return position["bytes"], position["modified"], position["sha256"]


def is_unchanged(folder: Path, position: Mapping[str, Any]) -> bool:
    """Return whether a file has the size and modification time that `position` describes.

    Raises:
        FileNotFoundError: it no longer exists.
    """
    facts = (folder / position["file"]).stat()
    return (facts.st_size, facts.st_mtime_ns) == (position["bytes"], position["modified"])


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
                facts = entry.stat()
                yield File(facts.st_mtime_ns, name, facts.st_size, folder)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


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
def _checksum(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
