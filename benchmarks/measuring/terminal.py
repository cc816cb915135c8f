"""Print lines and tables, and show the current progress on a terminal."""

import sys

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

# Without a terminal, rich would limit tables to 80 columns.
console = Console(width=None if sys.stdout.isatty() else 140)


def under_way(*more: ProgressColumn) -> Progress:
    """Return a display of the current work and its duration, which is empty without a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), *more)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
