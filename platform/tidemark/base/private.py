"""Files and folders of this user alone, and whose a file is that says which code runs."""

import os
import pwd
from pathlib import Path

TRUSTED = "TIDEMARK_TRUSTED_FOLDERS"
"""A variable: folders whose files may say which code runs, whoever owns them, separated by colons.
Not a setting, as a file of settings must not vouch for itself."""

_ROOT = 0


def make_folder(folder: Path) -> Path:
    """Create a folder that its owner alone can open, and its missing parents. Return it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_lock(file: Path) -> int:
    """Open a file for its lock, and create it if need be. Return its handle.

    Who can open a file can hold its lock, for ever too: its owner alone can open this one.

    Raises:
        OSError: it can't be opened, or is a link.
    """
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def foreign_owner(file: Path) -> str | None:
    """Return the name of another user who owns a file or its folder, and so says what is in it.

    Return None if there is no such user, if that is root, and if the folder is trusted.
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
