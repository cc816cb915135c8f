"""Find out whether another user can change code that runs as this user.

The settings file of the working folder names packages, and Python imports them from that folder. A
user who can change the file, the folder, or a file of a package therefore runs code as this user.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

TRUSTED = "TIDEMARK_TRUSTED_FOLDERS"
"""The environment variable that lists trusted folders, separated by colons.

Files in a trusted folder may select code to run, even if another user can change them. The variable
is not a setting, because a settings file must not declare its own folder to be trusted.
"""

_ROOT = 0
_CODE = (".py", ".pyc", ".so")


def find_exposure(file: Path) -> str | None:
    """Return how another user can change the code that a settings file selects, or None.

    The code is the file itself and the packages and modules of its folder. All of them must belong
    to this user or to root, and no other user may write to them. If `TRUSTED` lists the folder,
    nothing is checked.
    """
    folder = file.absolute().parent
    if str(folder) in os.environ.get(TRUSTED, "").split(os.pathsep):
        return None
    paths = [file, folder]
    paths += _code_of(folder)
    return next((exposure for path in paths if (exposure := _find_path_exposure(path))), None)


def find_folder_exposure(folder: Path) -> str | None:
    """Return how another user can change a folder of code or a file in it, or None."""
    if str(folder.absolute()) in os.environ.get(TRUSTED, "").split(os.pathsep):
        return None
    return next(
        (exposure for path in _walk_folder(folder) if (exposure := _find_path_exposure(path))), None
    )


def _code_of(folder: Path) -> Iterator[Path]:
    """Yield the modules of a folder, and its packages with their contents."""
    for path in _list_entries(folder):
        if (path / "__init__.py").exists():
            yield from _walk_folder(path)
        elif path.suffix in _CODE:
            yield path


def _walk_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder, and all files and folders in it, also those behind symbolic links."""
    seen = set[Path]()
    pending = [folder]
    while pending:
        path = pending.pop()
        yield path
        if path.is_dir() and (target := path.resolve()) not in seen:
            seen.add(target)
            pending += _list_entries(path)


def _list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        # Python can't import from such a folder either.
        return []


def _find_path_exposure(path: Path) -> str | None:
    """Return how another user can change or replace a file or folder, or None.

    The target of a symbolic link is checked as well.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        # Python has just replaced a compiled module.
        return None
    if status.st_uid not in (os.geteuid(), _ROOT):
        return f"'{path}' belongs to another user, '{_user_name(status.st_uid)}'"
    if stat.S_ISLNK(status.st_mode):
        target = path.parent / path.readlink()
        if target.exists():
            return _find_path_exposure(target) or _find_path_exposure(target.parent)
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"all users can write to '{path}'"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        return f"the group '{_group_name(status.st_gid)}' can write to '{path}'"
    return None


def _is_private_group(group: int, owner: int) -> bool:
    """Return whether a group has no members other than the owner of a file.

    Some systems give each user such a group, and let it write to the user's files.
    """
    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(group).gr_mem}
    except KeyError:
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    return members <= {owner, os.geteuid(), _ROOT}


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
