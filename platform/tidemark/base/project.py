"""Let processes import the packages of a project in the working folder, without installing it.

A folder with a settings file is a project. It is last in the module search path, so that it
does not hide installed packages.
"""

import os
import sys
from pathlib import Path

from tidemark.base.files.private import foreign_owner
from tidemark.base.settings import FILE


def find_project() -> None:
    """Add the project in the working folder to this process's module search path."""
    here = _here()
    if here is not None and here not in sys.path:
        sys.path.append(here)


def python_path() -> dict[str, str]:
    """Return the `PYTHONPATH` with which child processes find the project; empty without one."""
    given = os.environ.get("PYTHONPATH")
    parts = [part for part in (given, _here()) if part]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}


def _here() -> str | None:
    file = Path(FILE)
    return str(Path.cwd()) if file.is_file() and foreign_owner(file) is None else None
