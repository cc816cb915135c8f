"""Lock a folder that all homes share, so that one process at a time creates its contents."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.base.files.private import open_lock


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder, which is created if it is missing.

    A second process waits, and then finds the contents that the first one created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(folder.with_name(f"{folder.name}.lock"))
    except OSError as error:
        raise EngineError(
            f"Tidemark can't write in {folder} ({error.strerror or error}), which contains the "
            "files that all homes share: make that folder writable. If Tidemark is an installed "
            "package, you can set XDG_CACHE_HOME to another folder instead."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
