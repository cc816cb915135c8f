"""Locate the cache that all homes share: fetched jars and the AppCDS archive.

A checkout keeps the cache in its own folder `.engine`, so that both are deleted together. An
installed Tidemark keeps the cache in the folder `tidemark` of `XDG_CACHE_HOME` (default:
`~/.cache`). All files in the cache may be deleted; Tidemark fetches or creates them again.
"""

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.base.files.private import open_lock

_ROOT = Path(__file__).resolve().parents[4]


def cache_folder(name: str) -> Path:
    """Return the cache folder with this name, which may not exist yet."""
    return cache_root(_ROOT, os.environ) / name


def own_folder(name: str) -> Path:
    """Return the cache folder with this name that only this Python environment uses."""
    if _is_checkout(_ROOT):
        return cache_folder(name)
    return cache_folder(name) / hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]


def cache_root(root: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder that contains all cache folders.

    Args:
        root: the root folder of the checkout; any other folder if Tidemark is an installed package.
    """
    if _is_checkout(root):
        # `.engine` may be a symbolic link, with which working trees of one checkout share the
        # cache. The key of the archive needs the real paths of the jars.
        return (root / ".engine").resolve()
    # The XDG specification says to ignore a relative path.
    caches = Path(environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path("~/.cache").expanduser()) / "tidemark"


def in_checkout() -> bool:
    """Return whether this Tidemark runs from a checkout, not from an installed package."""
    return _is_checkout(_ROOT)


def _is_checkout(root: Path) -> bool:
    """Return whether a folder is a checkout, which `tools/setup` sets up."""
    return (root / "tools" / "setup").is_file()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder. Create the folder if it is missing.

    A second process waits, and then finds the contents that the first process created.
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
