"""The commands' help: each command is in a panel and has a valid example."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from helpers.processes.commands import call
from tidemark_streaming.cli import app
from tidemark_streaming.cli.app import PANELS

TIDEMARK: Any = typer.main.get_command(app)


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 (click's own)
    """Yield the words of each command, including subcommands."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


ALL = [*commands(TIDEMARK)]
SHOWN = [path for path in ALL if path != ("dbt", "COMMAND")]
"""Commands with Tidemark's own help: `tidemark dbt test --help` prints the help of dbt."""


def told(*words: str) -> str:
    """Return a command's help on one line."""
    return " ".join(call(*words, "--help").stdout.replace("│", " ").split())


def test_each_command_is_in_a_panel_and_new_comes_first() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(TIDEMARK.commands)
    said = call("--help").stdout
    assert re.findall(r"╭─ ([A-Z].*?) ─", said) == ["Options", *PANELS]
    assert re.findall(r"^│ ([a-z][a-z-]*) ", said, re.MULTILINE)[:2] == ["new", "demo"]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_command_has_a_valid_example(path: tuple[str, ...]) -> None:
    command = TIDEMARK
    for name in path:
        command = command.commands[name]
    example = re.search(r"Example: `tidemark (.*?)`", command.help)
    assert example is not None, command.help
    words = shlex.split(example[1])
    if path in SHOWN:
        assert tuple(words[: len(path)]) == path
    # Parse the example only: nothing is invoked.
    command.make_context(path[-1], words[len(path) :])
    if path in SHOWN:
        assert "Example: tidemark" in told(*path)


def test_help_says_omitted_for_absent_arguments() -> None:
    assert not [path for path in SHOWN if re.search(r"\b(if|when) left\b", told(*path))]


@pytest.mark.parametrize("path", SHOWN, ids=" ".join)
def test_help_shows_no_type_for_an_option_without_a_value(path: tuple[str, ...]) -> None:
    assert "<bool>" not in told(*path)


def test_a_former_command_names_the_new_one() -> None:
    result = call("simulate", "late.yaml")
    assert result.exit_code == 2
    assert result.stderr == "error: `tidemark simulate` is now `tidemark test FILE`.\n"
