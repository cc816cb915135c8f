"""Write files atomically: a reader sees the complete old or the complete new content."""

import os
from pathlib import Path


def write(file: Path, text: str) -> None:
    """Replace the content of a file in one step. Its folder must exist.

    Raises:
        OSError: it can't be written; it is unchanged.
    """
    # A hidden name, so that listings skip it, and a name that no other process uses.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(file)
