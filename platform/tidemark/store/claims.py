"""Claims: which folders of scratch are in use, and which were left by a process that was killed.

A claim is a lock on the folder itself, so it ends with the process that has it, however that ends.
Folders in a store of objects can't be claimed: of these only their age tells (`maintenance`).
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from tidemark.base import locks
from tidemark.store.committers.staged import file_system

_TRIES = 3


def claim(place: str) -> int | None:
    """Make a folder, unless it is there, and claim it until the handle is closed, or the process
    ends; None where that can't be had."""
    system, path = file_system(place)
    if not isinstance(system, pafs.LocalFileSystem):
        return None
    # Where a folder can't be made, whoever writes there says it better.
    with suppress(OSError):
        for _ in range(_TRIES):
            Path(path).mkdir(parents=True, exist_ok=True)
            handle = _locked(path)
            # It may have been swept away before it was locked.
            if handle is not None and Path(path).exists():
                return handle
            release(handle)
    return None


def release(handle: int | None) -> None:
    """Claim a folder no more."""
    if handle is not None:
        os.close(handle)


@dataclass(frozen=True)
class Swept:
    """What became of the folders in a folder.

    Args:
        gone: how many are gone.
        left: the names of those that stay: a living process claims them, or may; or they can't be
            removed.
    """

    gone: int
    left: list[str]


def sweep(place: str) -> Swept:
    """Remove the folders in a folder that no living process claims."""
    system, path = file_system(place)
    found = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    folders = [each for each in found if each.type == pafs.FileType.Directory]
    claimed = isinstance(system, pafs.LocalFileSystem)
    left = sorted(each.base_name for each in folders if not claimed or not _swept(each.path))
    return Swept(len(folders) - len(left), left)


def _swept(path: str) -> bool:
    handle = _locked(path)
    if handle is None:
        # Whoever had it may have removed it just now.
        return not Path(path).exists()
    shutil.rmtree(path, ignore_errors=True)
    os.close(handle)
    # An engine may still write for a process that was killed just now.
    return not Path(path).exists()


def _locked(path: str) -> int | None:
    """The handle of a folder with its lock; None where another process has it, or where there are
    no locks."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        if locks.take(handle):
            return handle
    os.close(handle)
    return None
