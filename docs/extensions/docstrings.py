"""Conversion of Markdown in docstrings to reStructuredText, for autodoc.

| in a docstring | on a page |
| --- | --- |
| a name in backticks | a literal |
| a table of pipes | a table |
| lines below `Example:`, or indented after an empty line | code |
"""

import re

from sphinx.application import Sphinx

_TICKED = re.compile(r"(?<![`:\w])`([^`\n]+)`(?![`\w])")
_ROW = re.compile(r"\| .* \|$")
_CELLS = re.compile(r"(?<!\\)\|")
_BEFORE_NAPOLEON = 400


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the conversion."""
    app.connect("autodoc-process-docstring", _convert, priority=_BEFORE_NAPOLEON)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _convert(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    lines[:] = rewrite(lines)


def rewrite(lines: list[str]) -> list[str]:
    """Convert a docstring's lines to reStructuredText."""
    found, table = list[str](), list[str]()
    code: int | None = None
    for line in [*lines, ""]:
        depth = len(line) - len(line.lstrip())
        if table and not _ROW.match(line):
            found += [*_table(table), ""]
            table = []
        if code is not None and line and depth < code:
            code = None
        if line == "Example:":
            found += [".. rubric:: Example", ""]
        elif _ROW.match(line):
            table.append(line)
        elif code is None and line and _begins_code(found, depth):
            found += [f"{line[: depth - 4]}.. code-block::", "", line]
            code = depth
        else:
            found.append(line if code is not None else _TICKED.sub(r"``\1``", line))
    return found


def _begins_code(before: list[str], depth: int) -> bool:
    """Return whether a line with this indentation starts a code block after an empty line."""
    if len(before) < 2 or before[-1] or depth < 4:
        return False
    above = next((line for line in reversed(before) if line), "")
    return len(above) - len(above.lstrip()) < depth


def _table(rows: list[str]) -> list[str]:
    head, _, *body = [_TICKED.sub(r"``\1``", row).strip().strip("|") for row in rows]
    found = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *body):
        for number, cell in enumerate(_CELLS.split(row)):
            found.append(f"   {' ' if number else '*'} - {cell.strip()}".rstrip())
    return found
