"""Open the landing folder at a path, or at an address of an object store."""

import re
from pathlib import Path

from tidemark.base.addresses import is_address
from tidemark_streaming.files.landed_file import LandingFolder
from tidemark_streaming.files.local_folder import LocalFolder

_LIKE_ADDRESS = re.compile(r"[a-z0-9]{2,}:/.*")
"""Matches how `Path` shows an address, of which it removes a slash."""


def check_place(place: Path | str) -> None:
    """Check that a connector can read the files at a place.

    Raises:
        ValueError: it is neither a path nor an address of an object store.
    """
    if isinstance(place, Path) and _LIKE_ADDRESS.fullmatch(str(place)):
        raise ValueError("an address must be a text, not a Path")
    is_address(str(place))


def open_folder(place: Path | str) -> LandingFolder:
    """Return the landing folder at a path or address."""
    if not is_address(str(place)):
        return LocalFolder(Path(place))
    # The client of object stores is loaded only if it is needed.
    from tidemark_streaming.files.bucket_folder import BucketFolder

    return BucketFolder(str(place))
