"""Write files atomically: a reader sees the complete old or the complete new content."""

import os
from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Replace the content of a file in one step. Its folder must exist.

    Raises:
        OSError: the file can't be written; its content is unchanged.
    """
    # The name is hidden, so that listings skip the file, and no other process uses the name.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(file)
