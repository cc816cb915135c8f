"""Decide which files of a landing folder are read."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

_WINDOWS_FILES = frozenset({"desktop.ini", "ehthumbs.db", "thumbs.db"})
"""Names of files, in lowercase, that Windows Explorer creates."""


def is_skipped(name: str) -> bool:
    """Return whether files and folders of this name are skipped.

    Args:
        name: the name of a file or folder, without the path.
    """
    return is_hidden(name) or _is_created_by_windows(name)


def is_hidden(name: str) -> bool:
    """Return whether a name begins like that of a file that is not complete."""
    return name.startswith((".", "_"))


def is_selected(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a file is selected.

    Args:
        name: the path of the file.
        patterns: patterns of file names. Without patterns, each file is selected.
    """
    last_part = name.rpartition("/")[2]
    return not patterns or any(fnmatchcase(last_part, pattern) for pattern in patterns)


def _is_created_by_windows(name: str) -> bool:
    # `~$` begins the name of the file with which Excel marks an open file.
    return name.startswith("~$") or name.lower() in _WINDOWS_FILES
