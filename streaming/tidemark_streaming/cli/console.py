"""Console output: results on stdout, everything else on stderr."""

import logging
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

import typer
from rich.console import Console, ConsoleDimensions
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from tidemark.base.errors import DefinitionError
from tidemark_streaming.base import logs

NONE = "-"
"""Shown for a missing value."""

_ENDLESS = 100_000


def result_console() -> Console:
    """Return the console for results, as wide as the terminal. Lines to a file do not wrap."""
    console = Console(soft_wrap=False)
    # Rich takes a file for a terminal if colors are forced, as in CI, or if the environment has a
    # width. Set both width and height: with only one of them, Rich may use 80 columns.
    if not console.file.isatty():
        console.size = ConsoleDimensions(_ENDLESS, 25)
    return console


def message_console() -> Console:
    """Return the console for progress, warnings and errors."""
    return Console(stderr=True, highlight=False)


def print_error(message: str) -> None:
    """Print an error message."""
    if logs.is_structured():
        logs.log_event(message, level=logging.ERROR)
        return
    message_console().print("[bold red]error:[/] ", end="")
    message_console().print(message, markup=False, soft_wrap=True)


def print_warning(message: str) -> None:
    """Print a warning, or that the cause of an earlier warning has ended. The command continues."""
    if logs.is_structured():
        logs.log_warning(message)
        return
    message_console().print(message, style="yellow", markup=False, soft_wrap=True)


def print_status(message: str) -> None:
    """Print a status message."""
    if logs.is_structured():
        logs.log_event(message)
        return
    message_console().print(message, markup=False, soft_wrap=True)


def ask_confirmation(action: str, question: str, otherwise: str) -> None:
    """Ask a yes-or-no question. End the command unless the answer is yes.

    Args:
        action: the action that `--yes` confirms, such as `delete the tables of 'orders_hourly'`,
            for the error message if stdin is not a terminal.
        otherwise: the message if the answer is no.
    """
    if not sys.stdin.isatty():
        raise DefinitionError(
            f"Can't ask for confirmation, because stdin is not a terminal: pass --yes to {action}."
        )
    if not typer.confirm(question, err=True):
        message_console().print(otherwise)
        raise typer.Exit


class Step:
    """The progress of some work, with a note that is printed when the work is done."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task
        self.note = ""

    def show_count(self, completed: int, total: int) -> None:
        """Show that `completed` of `total` units of the work are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=completed, total=total)

    def show_activity(self, line: str) -> None:
        """Show the current activity."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=line)


@contextmanager
def report_step(text: str) -> Iterator[Step]:
    """Show progress while the block runs, then a line with its duration."""
    began = time.monotonic()
    with show_progress(text) as work:
        yield work
    print_done(text, time.monotonic() - began, work.note)


@contextmanager
def show_progress(text: str) -> Iterator[Step]:
    """Show progress while the block runs, and print nothing after it."""
    console = message_console()
    if console.is_terminal and not logs.is_structured():
        bar = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=28))
        with Progress(*bar, TimeElapsedColumn(), console=console, transient=True) as progress:
            yield Step(progress, progress.add_task(text, total=None))
    else:
        yield Step()


def print_done(text: str, took: float, note: str = "") -> None:
    """Print that work is done, with its duration.

    Args:
        text: a description of the work.
        took: the duration in seconds.
        note: a remark at the end of the line; empty for none.
    """
    if logs.is_structured():
        logs.log_event(text, seconds=round(took, 3), note=note or None)
        return
    note = f"  [dim]{note}[/]" if note else ""
    message_console().print(
        f"[green]✓[/] {text}  [bold]{format_seconds(took)}[/]{note}", soft_wrap=True
    )


def format_seconds(length: float) -> str:
    """Return a duration as text, for example `3.2 s` or `2 min 5 s`."""
    if length < 100:
        return f"{length:.1f} s"
    return f"{length // 60:.0f} min {length % 60:.0f} s"


def print_facts(rows: Mapping[str, object], title: str = "") -> None:
    """Print a name and its value per row, on stdout."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, _format_cell(value))
    result_console().print(table)


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    title: str | None = None,
    right_columns: Container[str] = (),
    more: int = 0,
) -> None:
    """Print a table; integers appear in groups of three digits.

    Args:
        right_columns: the columns that are aligned to the right.
        more: the number of rows left out because of `--limit`; a line reports it if positive.
    """
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right" if name in right_columns else "left")
    for row in rows:
        cells = list[str]()
        for value in row:
            if isinstance(value, int):
                cells.append(f"{value:,}")
            else:
                cells.append(_format_cell(value))
        table.add_row(*cells)
    result_console().print(table)
    if more > 0:
        result_console().print(f"… and {more:,} more: increase --limit to list them.")


def _format_cell(value: object) -> str:
    """Return a value as text that rich shows unchanged, even if it looks like markup."""
    if value is None:
        return NONE
    return escape(str(value))


def format_time(moment: datetime) -> str:
    """Return a UTC time as text without the zone, and without a fraction of a second if it is 0."""
    return moment.replace(tzinfo=None).isoformat(" ")


def format_keys(keys: Mapping[str, object]) -> str:
    """Return a window's keys as text."""
    pairs = list[str]()
    for name, value in keys.items():
        shown = "null" if value is None else value
        pairs.append(f"{name}={shown}")
    return ", ".join(pairs)
