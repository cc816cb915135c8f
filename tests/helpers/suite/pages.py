"""The pages of the docs, followed as a reader does: files are written and commands run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>.+?) -->\n+)?"
    r"```(?P<language>\S*)(?: (?P<what>file|is|add)=(?P<file>\S+))?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = "not run: "
RUN_BY = "run by: "


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Args:
        what: `file` if it becomes the file of that name, `is` if it equals that existing file,
            `add` if it is added to the end of that existing file, otherwise empty.
        mark: the invisible comment above it: `run by: TEST`, or `not run:` with a reason.
    """

    language: str
    what: str
    file: str
    text: str
    mark: str

    @property
    def followed(self) -> bool:
        """Whether `followed` uses the block."""
        return not self.mark and (self.what != "" or self.language in ("sh", "python"))


def fences(document: str) -> Iterator[Block]:
    """Yield the fenced blocks of a document."""
    return _fences((ROOT / document).read_text())


def _fences(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        yield Block(**{name: text or "" for name, text in found.groupdict().items()})


def blocks(document: str) -> list[tuple[str, str, str]]:
    """Return the fenced blocks of a document: language, file name (or empty) and text."""
    return [(b.language, b.file, b.text) for b in fences(document) if b.what not in ("is", "add")]


def commands(document: str) -> list[list[str]]:
    """Return the arguments of each `tidemark` command in a document's tested shell blocks."""
    shown = [b for b in fences(document) if b.language == "sh" and not b.mark.startswith(NOT_RUN)]
    lines = (shlex.split(line, comments=True) for b in shown for line in b.text.splitlines())
    return [words for program, *words in filter(None, lines) if program == "tidemark"]


def unprinted(document: str, said: str) -> list[str]:
    """Return the lines of a document's tested `text` blocks that are not in `said`."""
    shown = (b.text for b in fences(document) if b.language == "text" and b.mark.startswith(RUN_BY))
    printed = _words(said)
    return [line for text in shown for line in text.splitlines() if _words(line) not in printed]


def _words(text: str) -> str:
    return " ".join(text.split())


def section(document: str, title: str) -> str:
    """Return a section of a document, from its heading to the next."""
    text = (ROOT / document).read_text()
    _, heading, after = text.partition(f"\n## {title}\n")
    assert heading, title
    return heading + after.partition("\n## ")[0]


def followed(
    document: str,
    folder: Path,
    env: Mapping[str, str],
    python: str | Path = sys.executable,
    *,
    only: str | None = None,
    without: str | None = None,
) -> str:
    """Run the commands of a document in order. Return their output.

    A block of `file=NAME` becomes that file. A block of `is=NAME` must equal that existing file.
    A block of `add=NAME` is added to the end of that existing file.

    Args:
        folder: the first working folder; a `cd` applies to all later commands.
        only: the only section to follow.
        without: a section to skip.
    """
    page = (ROOT / document).read_text() if only is None else section(document, only)
    if without is not None:
        page = page.replace(section(document, without), "")

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=here, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    said, here, place = "", folder, folder / ".place"
    for block in _fences(page):
        if not block.followed:
            continue
        if block.what == "is":
            assert (here / block.file).read_text() == block.text, block.file
        elif block.what == "file":
            path = here / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
        elif block.what == "add":
            path = here / block.file
            path.write_text(path.read_text() + "\n\n" + block.text)
        elif block.language == "sh":
            said += run("/bin/bash", "-e", "-c", f"{block.text}\npwd > '{place}'")
            here = Path(place.read_text().strip())
        else:
            said += run(python, "-c", block.text)
    place.unlink(missing_ok=True)
    return said
