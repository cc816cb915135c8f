"""`tidemark fsck`: check that the tables of a home are consistent."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidemark_streaming.cli.console import message_console, print_table, report_step
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.store.integrity.damage import Damage

_DAMAGED = 1
"""The exit code if something is damaged."""


@with_json
def check_tables() -> Output:
    """Check that no table lacks a commit or a data file, for example after a power cut or in a copy
    of a live home.

    It compares event logs with their timelines, and states with published tables, from transaction
    logs and file sizes alone, without the engine. `ingest` and `run` do the same for their own
    tables and refuse to work on damaged ones; `status` shows damaged tables. For each damaged
    table, the command names the version that a backup must have.

    Example: `tidemark fsck`
    """
    home = Home()
    with report_step("check the tables") as work:
        damages = home.find_damage()
        if damages:
            work.note = f"{len(damages)} damaged"
        else:
            work.note = "they are consistent"
    failure = typer.Exit(_DAMAGED) if damages else None
    return Output([asdict(damage) for damage in damages], lambda: _print_damages(damages), failure)


def _print_damages(damages: "list[Damage]") -> None:
    from tidemark.store.integrity.damage import ADVICE

    if damages:
        rows = ((damage.table, damage.asset, damage.problem) for damage in damages)
        print_table(("table", "asset", "problem"), rows, "damaged tables")
        message_console().print(ADVICE, markup=False)
