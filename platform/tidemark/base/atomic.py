"""Files that others read while they are written: whole, as before or as after."""

import os
from pathlib import Path


def write(file: Path, text: str) -> None:
    """Give a file a text in one step. Its folder must be there.

    Raises:
        OSError: it can't be written; it is as it was.
    """
    # Hidden, so that who lists the folder passes over it; and no other process has it.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(file)
