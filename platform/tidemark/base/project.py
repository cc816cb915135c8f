"""A project that is worked on in its own folder: its packages are found without being installed.

Such a folder has a file of settings. It comes last where modules are looked for, so that nothing in
it hides what is installed.
"""

import os
import sys
from pathlib import Path

from tidemark.base.private import foreign_owner
from tidemark.base.settings import FILE


def find_project() -> None:
    """Let this process find the packages of the project in the working folder."""
    here = _here()
    if here is not None and here not in sys.path:
        sys.path.append(here)


def python_path() -> dict[str, str]:
    """The variable by which processes that are started find them; none where there is no project
    and nothing else to say."""
    given = os.environ.get("PYTHONPATH")
    parts = [part for part in (given, _here()) if part]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}


def _here() -> str | None:
    file = Path(FILE)
    return str(Path.cwd()) if file.is_file() and foreign_owner(file) is None else None
