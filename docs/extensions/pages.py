"""Additions of the site to Markdown that a code host renders unchanged.

- The lists of an `index.md` are the table of contents: each becomes a part of the sidebar.
- Links to folders and pages outside `docs/` become plain text.
- A block that is a file (```` ```python file=shop/sources.py ````) has the file's name as caption.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

_HEADING = re.compile(r"^##+ (.+)$")
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w/.]+)\.md\)")
_UP = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)[^)]*\)")
_FILE = re.compile(r"^```(\w+) (?:file|is|add)=(\S+)$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the site's additions to the text of a page."""
    if page.rpartition("/")[2] == "index":
        source[0] += contents(source[0])
    folder = Path(app.srcdir, page).parent

    def without_outside_link(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        outside = not target.is_relative_to(Path(app.srcdir).resolve())
        return link[1] if outside and (target.is_dir() or target.suffix == ".md") else link[0]

    source[0] = _UP.sub(without_outside_link, source[0])
    source[0] = _FILE.sub(r"```{code-block} \1\n:caption: `\2`", source[0])


def contents(index: str) -> str:
    """Return the sidebar that the lists of a page define."""
    parts, heading = dict[str, list[str]](), ""
    for line in index.splitlines():
        if found := _HEADING.match(line):
            heading = found[1]
        elif found := _ENTRY.match(line):
            parts.setdefault(heading, []).append(found[1])
    return "".join(
        "\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in parts.items()
    )
