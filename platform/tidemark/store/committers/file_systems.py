"""Give the file system of a path or of an address."""

from functools import lru_cache
from urllib.parse import unquote

import pyarrow.fs as pafs


class FileChangedError(OSError):
    """A file is not the expected one any more, because it was changed or replaced."""


def local_folder(address: str) -> str | None:
    """Return the path of a folder on a disk of this machine; None for an object store."""
    if "://" not in address:
        return address
    if address.startswith("file://"):
        return unquote(address.removeprefix("file://"))
    return None


def file_system(address: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or address, and the path in it."""
    folder = local_folder(address)
    if folder is not None:
        return pafs.LocalFileSystem(), folder.rstrip("/")
    scheme, _, path = address.replace("s3a://", "s3://", 1).rstrip("/").partition("://")
    return _object_system(f"{scheme}://{path.partition('/')[0]}"), path


@lru_cache
def _object_system(bucket: str) -> pafs.FileSystem:
    # The client of object stores is loaded only if it is needed.
    from tidemark.store.committers.object_system import ObjectSystem

    return pafs.PyFileSystem(ObjectSystem(bucket))
