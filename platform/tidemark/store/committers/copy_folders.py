"""Private folders of this process, for copies of transaction logs.

The process removes them when it ends. If it was killed, the next process of this user removes them.
"""

import atexit
import os
import shutil
import weakref
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from tidemark.base.files import locks
from tidemark.base.files.private import make_folder
from tidemark.engine.launch import cache
from tidemark.store.committers.durable import LOG


class CopyFolder:
    """A folder with the transaction log of a table, removed with this object."""

    def __init__(self) -> None:
        process = os.getpid()
        self.path = Path(mkdtemp(dir=_process_folder(process)))
        self.log = self.path / LOG
        self.log.mkdir()
        weakref.finalize(self, _remove_own_folder, self.path, process)


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
