"""Commit to Tidemark's tables; the location of the warehouse determines the committer.

| warehouse | committer |
| --- | --- |
| local files, and object stores that create a file atomically (`s3`, `abfss`, `gs`) | `direct` |
| anything else | `engine` |

A table must never have two committers. The engine's log store for local files checks that a
commit's file does not exist, then renames over it. It could therefore silently replace a commit
that another committer has reported as done.
"""

from tidemark.store.committers.committer import (
    Committer,
    CompactionResult,
    Head,
    KeptFiles,
    Merge,
    VacuumResult,
    Vouches,
)
from tidemark.store.committers.direct import Direct
from tidemark.store.committers.engine import Engine

__all__ = [
    "Committer",
    "CompactionResult",
    "Direct",
    "Engine",
    "Head",
    "KeptFiles",
    "Merge",
    "VacuumResult",
    "Vouches",
    "atomic",
]

_ATOMIC = ("s3", "s3a", "abfs", "abfss", "gs", "file")


def atomic(location: str) -> bool:
    """Return whether `Direct` is the committer of a warehouse at this location."""
    scheme, found, _ = location.partition(":/")
    return not found or scheme in _ATOMIC
