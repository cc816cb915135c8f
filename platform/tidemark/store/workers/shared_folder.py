"""A folder of small files that several machines change by comparing and swapping.

An object store compares the version of a file with the one that the writer has read. On a disk, a
lock makes reading and replacing one step.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tidemark.base.files import atomic, locks
from tidemark.base.files.private import make_folder, open_lock
from tidemark.store.committers.file_systems import local_folder
from tidemark.store.committers.object_files import FileVersion, ObjectFolder

_LOCK = ".lock"


class SharedFile(NamedTuple):
    """The content of a file, and the version by which a later change is noticed.

    Args:
        version: differs for each content; None on a disk.
    """

    content: bytes
    version: FileVersion | None = None


class SharedFolder(Protocol):
    """A folder whose files are replaced one at a time. Files are never deleted."""

    def read_file(self, name: str) -> SharedFile | None:
        """Return a file; None if it does not exist."""
        ...

    def read_files(
        self, known_files: Mapping[str, SharedFile], prefixes: tuple[str, ...]
    ) -> dict[str, SharedFile]:
        """Return the files whose names begin with one of `prefixes`, by name.

        Args:
            known_files: files that were read before. A file with the same tag need not be read
                again.
        """
        ...

    def swap_file(self, name: str, content: bytes, seen: SharedFile | None) -> SharedFile | None:
        """Replace a file if it is still as it was seen. Return the new file; None if the file has
        changed.

        Args:
            seen: the file as it was read; None if it did not exist.
        """
        ...


def open_folder(location: str) -> SharedFolder:
    """Return the shared folder at a path or address."""
    folder = local_folder(location)
    if folder is None:
        return _StoreFolder(ObjectFolder(location))
    return _DiskFolder(Path(folder))


class _DiskFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_file(self, name: str) -> SharedFile | None:
        try:
            content = (self._folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return SharedFile(content)

    def read_files(
        self, known_files: Mapping[str, SharedFile], prefixes: tuple[str, ...]
    ) -> dict[str, SharedFile]:
        files = dict[str, SharedFile]()
        for path in sorted(self._folder.glob("*.json")):
            if not path.name.startswith(prefixes):
                continue
            file = self.read_file(path.name)
            if file is not None:
                files[path.name] = file
        return files

    def swap_file(self, name: str, content: bytes, seen: SharedFile | None) -> SharedFile | None:
        # The tables next to the folder may be readable for other users.
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        make_folder(self._folder)
        with _hold_lock(self._folder / _LOCK):
            if self.read_file(name) != seen:
                return None
            atomic.write_atomically(self._folder / name, content.decode())
        return SharedFile(content)


@contextmanager
def _hold_lock(file: Path) -> Iterator[None]:
    handle = open_lock(file)
    try:
        locks.wait_and_take(handle)
        yield
    finally:
        os.close(handle)


class _StoreFolder:
    def __init__(self, folder: ObjectFolder) -> None:
        self._folder = folder

    def read_file(self, name: str) -> SharedFile | None:
        tagged = self._folder.read_tagged(name)
        if tagged is None:
            return None
        content, version = tagged
        return SharedFile(content, version)

    def read_files(
        self, known_files: Mapping[str, SharedFile], prefixes: tuple[str, ...]
    ) -> dict[str, SharedFile]:
        tags = dict[str, str]()
        for page in self._folder.list_after(""):
            for listed in page:
                if listed.name.startswith(prefixes):
                    tags[listed.name] = listed.tag
        unchanged = dict[str, SharedFile]()
        for name, file in known_files.items():
            if file.version is not None and tags.get(name) == file.version.tag:
                unchanged[name] = file
        changed = dict[str, SharedFile]()
        for name in tags:
            if name in unchanged:
                continue
            file = self.read_file(name)
            if file is not None:
                changed[name] = file
        return unchanged | changed

    def swap_file(self, name: str, content: bytes, seen: SharedFile | None) -> SharedFile | None:
        seen_version = None if seen is None else seen.version
        new_version = self._folder.replace_file(name, content, seen_version)
        if new_version is None:
            return None
        return SharedFile(content, new_version)
