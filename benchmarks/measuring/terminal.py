"""Where benchmarks print: lines and tables that last, and what is under way on a terminal."""

import sys

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

# A file has no width of its own: rich would squeeze tables into 80 columns.
console = Console(width=None if sys.stdout.isatty() else 140)


def under_way(*more: ProgressColumn) -> Progress:
    """What is being done, and for how long already; nothing where there is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), *more)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
