"""`tidemark engine`: prepare an engine that you start yourself, and check it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidemark_streaming.cli.console import print_table, report_step
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark_streaming.home.engine_check import Difference

app = typer.Typer(
    no_args_is_help=True,
    help="Prepare and check an engine that you start yourself, for example on a cluster."
    "\n\nExample: `tidemark engine check`",
)

_DIFFERENT = 1
"""The exit code if the engine lacks something that is required."""


@app.command("conf")
def print_settings() -> None:
    """Print the Spark settings that an engine of your own should have, as a `spark-defaults.conf`.

    Each setting comes after its reason, and the settings that Tidemark requires come first. Add the
    file system of your object store, its credentials, and memory.

    Example: `tidemark engine conf`
    """
    from tidemark.engine.conf import as_properties

    typer.echo("\n".join(as_properties()))


@app.command("check")
@with_json
def report_differences() -> Output:
    """Check that the engine fits: versions, settings, its Python, and the warehouse.

    A function runs on the workers, and another one in a streaming query in the server's Python.
    Each difference is reported with what to do. The exit code is 1 if a required one is found.
    `TIDEMARK_REMOTE` names an engine that Tidemark has not started.

    Example: `tidemark engine check`
    """
    from tidemark_streaming.home.engine_check import check_engine

    home = Home()
    warehouse = home.open_warehouse()
    with report_step("check the engine") as work:
        differences = list(check_engine(warehouse, home.settings.domains))
        if differences:
            work.note = f"{len(differences)} differences"
        else:
            work.note = "it fits"
    required = any(difference.required for difference in differences)
    return Output(
        [asdict(difference) for difference in differences],
        lambda: _print_differences(differences),
        typer.Exit(_DIFFERENT) if required else None,
    )


def _print_differences(differences: "list[Difference]") -> None:
    if differences:
        rows = (
            (difference.part, "yes" if difference.required else "no", difference.problem)
            for difference in differences
        )
        print_table(("part", "required", "problem"), rows, "differences")
