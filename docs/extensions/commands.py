"""The directive `commands`: the reference of the command line, generated from the app."""

import re
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tidemark_streaming.cli import app as tidemark

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_CODE = re.compile(r"(`[^`]*`)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Commands(SphinxDirective):
    """A section for each command, with its help, arguments and options."""

    def run(self) -> list[nodes.Node]:
        root: Any = typer.main.get_command(tidemark)
        return self.parse_text_to_nodes("\n".join(reference(root)), allow_section_headings=True)


def reference(group: Any, path: str = "tidemark", level: int = 3) -> Iterator[str]:  # noqa: ANN401
    """Yield the Markdown of a group's commands, with the panels of the help as headings."""
    panel = None
    with group.make_context(path, [], resilient_parsing=True) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command.rich_help_panel, str) and command.rich_help_panel != panel:
                panel = command.rich_help_panel
                yield from (f"## {panel}", "")
            whole = f"{path} {name}"
            yield from ("#" * level + f" {whole}", "", _with_code(command.help), "")
            with command.make_context(name, [], parent=context, resilient_parsing=True) as its:
                yield from _parameters(command, its, whole)
            if hasattr(command, "list_commands"):
                yield from reference(command, whole, level + 1)


def _parameters(command: Any, context: Any, path: str) -> Iterator[str]:  # noqa: ANN401
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{path} {usage}", "```", "")
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [
        f"| `{_cell(name)}` | {_cell(_with_code(text))} |" for name, text in filter(None, records)
    ]
    if rows:
        yield from ("| | |", "| --- | --- |", *rows, "")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _with_code(text: str) -> str:
    """Format the options in a help text as code."""
    plain, *rest = _CODE.split(text)
    found = [_OPTION.sub(r"`\g<0>`", plain)]
    for code, after in zip(rest[::2], rest[1::2], strict=True):
        found += [code, _OPTION.sub(r"`\g<0>`", after)]
    return "".join(found)
