"""List the files in a folder of this machine, and detect files that were changed."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tidemark.base.errors import DataError
from tidemark.store.committers.file_systems import FileChangedError
from tidemark_streaming.files.landed_file import Facts, LandedFile, hash_content
from tidemark_streaming.files.listing_rules import is_hidden, is_selected, is_skipped

_CACHED_CHECKSUMS = 1 << 16

_SystemFacts = tuple[int, int, int, int]
"""The size, the modification time, the change time, and the inode of a file."""


@dataclass(frozen=True)
class LocalFile(LandedFile):
    """A landed file on a disk of this machine.

    Args:
        modified: the modification time, in nanoseconds. Programs can set it.
        changed: the change time of the inode, in nanoseconds. Only the file system sets it. So a
            program can replace a file by one with the same size and modification time, but not with
            the same change time and inode.
    """

    changed: int
    inode: int
    folder: Path

    copies_keep_time: ClassVar[bool] = True
    writing_advice: ClassVar[str] = (
        "Write files under a name that begins with '.' or '_', and rename them when they are "
        "complete."
    )

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def location(self) -> str:
        return str(self.path)

    @property
    def facts(self) -> Facts:
        size, modified, changed, inode = self._system_facts
        return {"bytes": size, "modified": modified, "changed": changed, "inode": inode}

    @property
    def checksum(self) -> str:
        return _compute_checksum(self.path, self._system_facts)

    def open(self) -> pa.NativeFile:
        return _open_file(self.path)

    def check_unchanged(self) -> None:
        if _read_facts(self.path.stat()) != self._system_facts:
            raise FileChangedError(f"'{self.path}' has changed.")

    @property
    def _system_facts(self) -> _SystemFacts:
        return self.size, self.modified, self.changed, self.inode


class LocalFolder:
    """A landing folder on a disk of this machine.

    A symbolic link in it is left out if its target is listed anyway.
    """

    poll_seconds: float = 0.0

    def __init__(self, path: Path) -> None:
        self._path = path

    def list_files(self, names: Sequence[str] = ()) -> list[LandedFile]:
        with os.scandir(self._path) as entries:
            files = _list_files(self._path, "", entries, (os.path.realpath(self._path),))
            selected = [file for file in files if is_selected(file.name, names)]
        return sorted(selected, key=attrgetter("modified", "name"))

    def find_file(self, position: Mapping[str, Any]) -> LandedFile:
        return LocalFile(
            position["modified"],
            position["file"],
            position["bytes"],
            position["changed"],
            position["inode"],
            self._path,
        )

    def compute_checksums(self, files: Sequence[LandedFile]) -> None:
        """Do nothing: a disk does not read several files faster than one."""


def _list_files(
    folder: Path, prefix: str, entries: Iterable[os.DirEntry[str]], above: tuple[str, ...]
) -> Iterator[LandedFile]:
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
        if is_skipped(entry.name) or (entry.is_symlink() and _is_listed(entry, above)):
            continue
        # Files that were renamed or deleted since their folder was listed are skipped.
        with suppress(FileNotFoundError):
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                with os.scandir(entry.path) as below:
                    yield from _list_files(folder, f"{name}/", below, (*above, real))
            elif entry.is_file():
                _check_name(folder, name)
                size, modified, changed, inode = _read_facts(entry.stat())
                yield LocalFile(modified, name, size, changed, inode, folder)


def _read_facts(status: os.stat_result) -> _SystemFacts:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _is_listed(link: os.DirEntry[str], above: tuple[str, ...]) -> bool:
    """Return whether a link leads to a file or folder that is listed anyway."""
    target = os.path.realpath(link.path)
    # The relative path of a target outside the first folder begins with two periods, so that the
    # target counts as hidden.
    parts = Path(os.path.relpath(target, above[0])).parts
    return target in above or not any(map(is_hidden, parts))


def _check_name(folder: Path, name: str) -> None:
    """Refuse a file name that is not UTF-8, because a table can't store it."""
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if shown != name:
        raise DataError(
            f"The file '{folder}/{shown}' can't be ingested: its name is not UTF-8. Rename the "
            "file or move it out of the folder."
        )


@lru_cache(_CACHED_CHECKSUMS)
def _compute_checksum(path: Path, facts: _SystemFacts) -> str:
    with _open_file(path) as file:
        return hash_content(file)


def _open_file(path: Path) -> pa.NativeFile:
    try:
        return pa.OSFile(str(path))
    except OSError as error:
        if error.errno is None:
            raise
        # Arrow's error has neither the path nor the reason by itself.
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
