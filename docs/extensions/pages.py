"""Markdown that a forge shows as it is, with what a site has besides.

- The lists of an `index.md` are contents: a list below a heading becomes a part of the sidebar.
- Folders and pages of the checkout outside `docs/` are named, and are no links.
- A block that is a file (```` ```python file=shop/feed.py ````) has the file's name above it.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

_HEADING = re.compile(r"^##+ (.+)$")
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w/.]+)\.md\)")
_UP = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)[^)]*\)")
_FILE = re.compile(r"^```(\w+) (?:file|is)=(\S+)$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page's text what only a site has."""
    if page.rpartition("/")[2] == "index":
        source[0] += contents(source[0])
    folder = Path(app.srcdir, page).parent

    def reached(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        outside = not target.is_relative_to(Path(app.srcdir).resolve())
        return link[1] if outside and (target.is_dir() or target.suffix == ".md") else link[0]

    source[0] = _UP.sub(reached, source[0])
    source[0] = _FILE.sub(r"```{code-block} \1\n:caption: `\2`", source[0])


def contents(index: str) -> str:
    """The sidebar, of the lists of a page."""
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
