"""Create private files and folders, and check the owner of files that select code to run."""

import os
import pwd
from pathlib import Path

TRUSTED = "TIDEMARK_TRUSTED_FOLDERS"
"""The environment variable that lists trusted folders, separated by colons.

Files in a trusted folder may select code to run, even if another user owns them. The variable is
not a setting, because a settings file must not declare its own folder to be trusted.
"""

_ROOT = 0


def make_folder(folder: Path) -> Path:
    """Create a folder and its missing parents, which only their owner can open. Return the folder.

    The mode of existing folders does not change.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_lock(file: Path, *, writable: bool = True) -> int:
    """Open a file for its lock, create it if it is missing, and return its handle.

    Only its owner can open a created file: anyone who can open a file can hold its lock forever.

    Args:
        writable: false if the caller only shares the lock. The file is then opened for reading.
            This also works for an existing file on a read-only file system, and the open handle
            does not prevent remounting a file system as read-only.
    """
    access = os.O_RDWR if writable else os.O_RDONLY
    return os.open(file, access | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def foreign_owner(file: Path) -> str | None:
    """Return the name of another user who owns a file or its folder and can thus change the file.

    Return None if this user or root owns both, or if `TRUSTED` lists the folder.
    """
    folder = file.absolute().parent
    if str(folder) in os.environ.get(TRUSTED, "").split(os.pathsep):
        return None
    for path in (file, folder):
        owner = path.stat().st_uid
        if owner not in (os.geteuid(), _ROOT):
            return _name(owner)
    return None


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
