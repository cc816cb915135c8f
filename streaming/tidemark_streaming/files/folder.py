"""The files in a folder and its sub-folders, and how to recognize one that has changed."""

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


@dataclass(frozen=True, order=True)
class File:
    """A file, ordered by modification time, then by name.

    Args:
        modified: the modification time, in nanoseconds.
        name: the path below the folder, with `/` between its parts.
        size: the size in bytes.
        folder: the folder that was listed.
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
        """The facts by which `has_changed` recognizes the file later."""
        return {
            "file": self.name,
            "bytes": self.size,
            "modified": self.modified,
            "sha256": self.checksum,
        }

    def has_changed(self, position: Mapping[str, Any]) -> bool:
        """Return whether the content differs from the one that `position` describes.

        The content is read only if the size is the same and the modification time is not.
        """
        if self.size != position["bytes"]:
            return True
        return self.modified != position["modified"] and self.checksum != position["sha256"]


def list_files(folder: Path) -> list[File]:
    """List the files of a folder and its sub-folders, in the order in which they arrive.

    Files and sub-folders whose names begin with `.` or `_` are left out.

    Raises:
        OSError: the folder does not exist or can't be read.
        DataError: a name that is not UTF-8.
    """
    with os.scandir(folder) as entries:
        return sorted(_files(folder, "", entries))


def _files(folder: Path, prefix: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[File]:
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.name.startswith((".", "_")):
            continue
        # Files that were renamed or deleted since their folder was listed are skipped.
        with suppress(FileNotFoundError):
            if entry.is_dir():
                with os.scandir(entry.path) as below:
                    yield from _files(folder, f"{name}/", below)
            elif entry.is_file():
                _check_name(folder, name)
                facts = entry.stat()
                yield File(facts.st_mtime_ns, name, facts.st_size, folder)


def _check_name(folder: Path, name: str) -> None:
    """Refuse a name that is not UTF-8, because tables can't have it."""
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
