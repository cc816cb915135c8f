"""One process at a time: what is made once for all homes is not made twice at once."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.base.private import open_lock


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only process that makes what is in a folder, which is created if need be; who comes
    second waits, and finds what the first made.

    Raises:
        EngineError: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(folder.with_name(f"{folder.name}.lock"))
    except OSError as error:
        raise EngineError(
            f"Tidemark can't write in {folder} ({error.strerror or error}), where it keeps what "
            "all homes share: make that folder writable (where Tidemark is installed and not a "
            "checkout, XDG_CACHE_HOME may name another)."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
