"""Claim scratch folders, so that leftovers of killed processes can be found and removed.

A claim is a lock on the folder itself, so it ends with the process that holds it, however that
process ends. Folders in an object store can't be claimed: `maintenance` removes them when they are
old.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from tidemark.base.files import locks
from tidemark.store.committers.file_systems import file_system

_TRIES = 3


def claim_folder(address: str) -> int | None:
    """Create a folder if it is missing, and claim it.

    The claim lasts until the handle is closed or the process ends.

    Returns:
        The handle; None if another process holds the claim, or if the folder can't be created or is
        in an object store.
    """
    system, path = file_system(address)
    if not isinstance(system, pafs.LocalFileSystem):
        return None
    # If the folder can't be created, the later write there reports a better error.
    with suppress(OSError):
        for _ in range(_TRIES):
            Path(path).mkdir(parents=True, exist_ok=True)
            handle = _lock_folder(path)
            # Another process may have removed the folder before this one locked it.
            if handle is not None and Path(path).exists():
                return handle
            release_claim(handle)
    return None


def release_claim(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


@dataclass(frozen=True)
class SweepResult:
    """The subfolders that a sweep of a folder has removed, and those that remain.

    Args:
        removed: the number of removed subfolders.
        remaining: the names of the remaining subfolders: a living process claims them, or they
            can't be removed. In an object store, all subfolders remain, because claims do not exist
            there.
    """

    removed: int
    remaining: list[str]


def sweep_folders(address: str) -> SweepResult:
    """Remove each subfolder of `address` that no living process claims."""
    system, path = file_system(address)
    is_local = isinstance(system, pafs.LocalFileSystem)
    removed = 0
    remaining = list[str]()
    for info in system.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
        if info.type != pafs.FileType.Directory:
            continue
        if is_local and _sweep_folder(info.path):
            removed += 1
        else:
            remaining.append(info.base_name)
    return SweepResult(removed, sorted(remaining))


def _sweep_folder(path: str) -> bool:
    handle = _lock_folder(path)
    if handle is None:
        # The process that held the lock may have removed the folder just now.
        return not Path(path).exists()
    shutil.rmtree(path, ignore_errors=True)
    os.close(handle)
    # The engine of a process that was just killed may still be writing into the folder.
    return not Path(path).exists()


def _lock_folder(path: str) -> int | None:
    """Lock a folder, and return its handle.

    Return None if the folder does not exist, if another process holds the lock, or if the file
    system has no locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        if locks.take_lock(handle):
            return handle
    os.close(handle)
    return None
