"""Let processes import the packages of a project in the working folder, without installing it.

A folder with a settings file is a project. The folder is last in the module search path, so that
its modules do not hide installed packages.
"""

import os
import sys
from pathlib import Path

from tidemark.base.files.trust import find_exposure
from tidemark.base.settings import FILE


def find_project() -> None:
    """Add the project in the working folder to this process's module search path, if there is one.

    The folder is not added if another user can change the settings file or the packages.
    """
    folder = _project_folder()
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)


def python_path() -> dict[str, str]:
    """Return the environment variable `PYTHONPATH` with which child processes find the project.

    The variable keeps this process's `PYTHONPATH`, before the project. Return an empty mapping if
    this process has no `PYTHONPATH` and there is no project.
    """
    existing = os.environ.get("PYTHONPATH")
    parts = [part for part in (existing, _project_folder()) if part]
    if parts:
        return {"PYTHONPATH": os.pathsep.join(parts)}
    return {}


def find_modules() -> list[str]:
    """Return the names of the packages and modules in the project's folder, if there is one."""
    folder = _project_folder()
    if folder is None:
        return []
    modules = [path.stem for path in Path(folder).glob("*.py")]
    return modules + [path.parent.name for path in Path(folder).glob("*/__init__.py")]


def _project_folder() -> str | None:
    file = Path(FILE)
    if file.is_file() and find_exposure(file) is None:
        return str(Path.cwd())
    return None
