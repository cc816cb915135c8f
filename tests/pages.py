"""The pages of the docs, as a reader follows them: files are written, commands are run."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)(?: (file|is)=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[tuple[str, str, str]]:
    """The fenced blocks of a document: language, file name or nothing, text."""
    found = BLOCK.findall((ROOT / document).read_text())
    return [(language, file, text) for language, what, file, text in found if what != "is"]


def followed(
    document: str, folder: Path, env: Mapping[str, str], python: str | Path = sys.executable
) -> str:
    """What the commands of a document say, run one after the other.

    A block of `file=NAME` becomes that file, and one of `is=NAME` is what that file holds already.

    Args:
        folder: where the reader begins; a `cd` holds for what comes after it.
    """

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=here, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    said, here, place = "", folder, folder / ".place"
    for language, what, file, text in BLOCK.findall((ROOT / document).read_text()):
        if what == "is":
            assert (here / file).read_text() == text, file
        elif what == "file":
            path = here / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif language == "sh":
            said += run("/bin/bash", "-e", "-c", f"{text}\npwd > '{place}'")
            here = Path(place.read_text().strip())
        elif language == "python":
            said += run(python, "-c", text)
    place.unlink(missing_ok=True)
    return said
