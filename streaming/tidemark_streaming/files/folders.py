"""Open the landing folder at a path, or at an address of an object store."""

import re
from pathlib import Path

from tidemark.base.addresses import is_address
from tidemark_streaming.files.landed_file import LandingFolder
from tidemark_streaming.files.local_folder import LocalFolder

_LIKE_ADDRESS = re.compile(r"[a-z0-9]{2,}:/.*")
"""Matches how `Path` shows an address, of which it removes a slash."""


def check_place(folder: Path | str) -> None:
    """Check that a connector can read the files at a place.

    Raises:
        ValueError: it is neither a path nor an address of an object store.
    """
    if isinstance(folder, Path) and _LIKE_ADDRESS.fullmatch(str(folder)):
        raise ValueError("an address must be a text, not a Path")
    is_address(str(folder))


def open_folder(folder: Path | str) -> LandingFolder:
    """Return the landing folder at a path or address."""
    if not is_address(str(folder)):
        return LocalFolder(Path(folder))
    # The client of object stores is loaded only if it is needed.
    from tidemark_streaming.files.bucket_folder import BucketFolder

    return BucketFolder(str(folder))
