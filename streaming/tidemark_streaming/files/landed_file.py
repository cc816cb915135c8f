"""Landed files: the files that a file connector reads, in a local folder or in an object store."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, Protocol

import pyarrow as pa

_READ_BYTES = 1 << 20

Facts = Mapping[str, int | str]
"""What a listing shows of a file's content. While the facts stay the same, the content stays the
same."""

_Identity = tuple[int, int, int, str]
"""The inode, the size, the modification time, and the checksum of a file."""


@dataclass(frozen=True)
class LandedFile(ABC):
    """A file that a connector reads, on a disk or in an object store.

    Args:
        modified: the modification time, in nanoseconds.
        name: the path below the landing folder, with `/` between its parts.
        size: the size in bytes.
    """

    modified: int
    name: str
    size: int

    copies_keep_time: ClassVar[bool]
    """True if a copy of the file may have the file's modification time."""

    writing_advice: ClassVar[str]
    """How to write files that do not change while they are read."""

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or address of the file, for messages."""

    @property
    @abstractmethod
    def facts(self) -> Facts: ...

    @property
    @abstractmethod
    def checksum(self) -> str:
        """The SHA-256 of the content.

        Raises:
            OSError: the file does not exist, or can't be read.
        """

    @abstractmethod
    def open(self) -> pa.NativeFile:
        """Open the file for reading.

        Raises:
            OSError: the file does not exist, or can't be read.
            FileChangedError: the file was replaced. A later read may raise it too.
        """

    @abstractmethod
    def check_unchanged(self) -> None:
        """Verify that a file that was opened and read still has its facts.

        Raises:
            FileChangedError: it was changed or replaced.
            FileNotFoundError: it no longer exists.
        """

    @property
    def position(self) -> dict[str, Any]:
        """The position of the file's arrival, with which `has_changed` compares the file later."""
        return {
            "file": self.name,
            "bytes": self.size,
            "modified": self.modified,
            **self.facts,
            "sha256": self.checksum,
        }

    @property
    def identity(self) -> _Identity:
        """The properties that stay the same if the file is renamed or moved."""
        return int(self.facts.get("inode", 0)), self.size, self.modified, self.checksum

    def has_facts_of(self, position: Mapping[str, Any]) -> bool:
        """Return whether the file has the facts that `position` describes."""
        return all(position.get(name) == fact for name, fact in self.facts.items())

    def has_changed(self, position: Mapping[str, Any]) -> bool:
        """Return whether the content differs from the content that `position` describes.

        The content is read only if the size is the same and another fact is not.
        """
        if self.size != position["bytes"]:
            return True
        return not self.has_facts_of(position) and self.checksum != position["sha256"]


class LandingFolder(Protocol):
    """A folder whose files a connector reads."""

    @property
    def poll_seconds(self) -> float:
        """The minimum time between two listings that find nothing."""
        ...

    def list_files(self, names: Sequence[str] = ()) -> list[LandedFile]:
        """List the files of the folder and its subfolders, in the order in which they arrive.

        The order is that of the modification times, then of the names. Files and subfolders whose
        names begin with `.` or `_` are left out, and so are the files that Windows and its programs
        create next to a user's files.

        Args:
            names: patterns of file names, as in `*.csv`. If there are any, all other files are left
                out.

        Raises:
            OSError: the folder does not exist or can't be read.
            DataError: the name of a file is not UTF-8.
        """
        ...

    def find_file(self, position: Mapping[str, Any]) -> LandedFile:
        """Return the file that the position of a pending arrival describes."""
        ...

    def compute_checksums(self, files: Sequence[LandedFile]) -> None:
        """Compute the checksums of files that will be requested next, if this saves time."""
        ...


def find_displaced(
    ingested: Mapping[str, Mapping[str, Any]], files: Iterable[LandedFile]
) -> set[str]:
    """Return the names of ingested files that no longer exist, or of which a fact has changed.

    Such a file may have been renamed or moved. If so, a file in `files` has its identity.

    Args:
        ingested: the positions of ingested files, by name.
        files: the files that exist now.
    """
    displaced = set(ingested)
    for file in files:
        if file.name in ingested and file.has_facts_of(ingested[file.name]):
            displaced.discard(file.name)
    return displaced


def identity_of(position: Mapping[str, Any]) -> _Identity:
    """Return the `LandedFile.identity` of an ingested file, from the position of its arrival."""
    return position.get("inode", 0), position["bytes"], position["modified"], position["sha256"]


def find_beginning(
    file: LandedFile, deleted: Iterable[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Find an ingested file, since deleted, whose content is the beginning of a new file.

    The new file then has events that were already ingested. For example, a file was ingested while
    it was being written, and was then completed and renamed. The new file may also be a copy of a
    deleted file.

    Args:
        file: the new file.
        deleted: the positions of ingested files that no longer exist (`LandedFile.position`).

    Returns:
        One of these positions, that of the shortest such file; None if there is no such file.
    """
    positions = [p for p in deleted if 0 < p["bytes"] <= file.size]
    positions.sort(key=itemgetter("bytes"))
    if not positions:
        return None
    checksum = hashlib.sha256()
    checked_bytes = 0
    with file.open() as content:
        for position in positions:
            while checked_bytes < position["bytes"]:
                block = content.read(min(_READ_BYTES, position["bytes"] - checked_bytes))
                if not block:
                    return None
                checksum.update(block)
                checked_bytes += len(block)
            is_beginning = checksum.copy().hexdigest() == position["sha256"]
            # Another file may have the same content, but hardly the same modification time too.
            is_distinct = (
                file.copies_keep_time
                and checked_bytes == file.size
                and file.modified != position["modified"]
            )
            if is_beginning and not is_distinct:
                return position
    return None


def hash_content(file: pa.NativeFile) -> str:
    """Return the SHA-256 of a file that was just opened."""
    checksum = hashlib.sha256()
    while block := file.read(_READ_BYTES):
        checksum.update(block)
    return checksum.hexdigest()
