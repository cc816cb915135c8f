"""Who commits to Tidemark's tables: decided once, by where the warehouse is.

| warehouse | committer |
| --- | --- |
| local files, and object stores that create a file atomically (`s3`, `abfss`, `gs`) | `direct` |
| anything else | `engine` |

Never two kinds on one table: the engine's log store for local files checks and then renames, which
replaces, so a commit that another committer had reported may be gone without an error.
"""

from tidemark.store.committers.committer import (
    Committer,
    Folded,
    Freed,
    Head,
    Merge,
    Spared,
    Vouches,
)
from tidemark.store.committers.direct import Direct
from tidemark.store.committers.engine import Engine

__all__ = [
    "Committer",
    "Direct",
    "Engine",
    "Folded",
    "Freed",
    "Head",
    "Merge",
    "Spared",
    "Vouches",
    "atomic",
]

_ATOMIC = ("s3", "s3a", "abfs", "abfss", "gs", "file")


def atomic(location: str) -> bool:
    """Whether a warehouse there is one that `Direct` commits to."""
    scheme, found, _ = location.partition(":/")
    return not found or scheme in _ATOMIC
