"""Create private files and folders."""

import os
from pathlib import Path


def make_folder(folder: Path) -> Path:
    """Create a folder and its missing parents, which only their owner can open. Return the folder.

    The mode of existing folders does not change.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_lock(file: Path, *, writable: bool = True) -> int:
    """Open a file for its lock, create it if it is missing, and return its handle.

    Only its owner can open a created file: anyone who can open a file can hold its lock forever.

    Args:
        writable: false if the caller only shares the lock. The file is then opened for reading.
            This also works for an existing file on a read-only file system, and the open handle
            does not prevent remounting a file system as read-only.
    """
    access = os.O_RDWR if writable else os.O_RDONLY
    return os.open(file, access | os.O_CREAT | os.O_NOFOLLOW, 0o600)
