"""The demo's report of quarantined windows, with the reason that the data give."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from tidemark.base.instants import instant
from tidemark_streaming.cli.console import out, print_error

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.store.warehouse import Warehouse

SHOWN = 5
"""Windows that are listed."""


def report_quarantine(store: "Warehouse", transform: "Definition") -> list[int]:
    """Say which windows of an asset are withheld and why; the start of each, in microseconds.

    Raises:
        typer.Exit: the data do not explain one of them; exit code 1.
    """
    from tidemark.verify.explanation import find_unexplained
    from tidemark.verify.integrity_checks import FAULT_TEXT, INTEGRITY_CHECKS, remedy

    table = transform.quarantine_table
    if not transform.expectations or not store.exists(table):
        return []
    rows = store.take(table).sort_by("window_start").to_pylist()
    if not rows:
        out().print(f"No window of '{transform.name}' is in quarantine.")
        return []
    wrong = find_unexplained(transform, rows)
    said = "" if wrong else ", as their values explain"
    count = "1 window" if len(rows) == 1 else f"{len(rows):,} windows"
    out().print(f"{count} of '{transform.name}' in quarantine{said}:", soft_wrap=True)
    for row in rows[:SHOWN]:
        failed = "; ".join(f"{f['expectation']}: {f['observed']}" for f in row["failed"])
        out().print(f"  {_place(transform, row)}: {failed}", markup=False, soft_wrap=True)
    if len(rows) > SHOWN:
        out().print(f"  … `tidemark quarantine list {transform.name}` lists all of them")
    if wrong:
        row, expectation = wrong[0]
        why = FAULT_TEXT if expectation in INTEGRITY_CHECKS else "which its values meet"
        print_error(
            f"The data do not explain {len(wrong):,} of the quarantined windows of "
            f"'{transform.name}'. The first, {_place(transform, row)}, failed {expectation}, "
            f"{why}: {remedy(transform)}"
        )
        raise typer.Exit(1)
    return [instant(row["window_start"]) for row in rows]


def _place(transform: "Definition", row: Mapping[str, Any]) -> str:
    keys = [str(row[key]) for key in transform.keys]
    return ", ".join([f"{row['window_start']:%Y-%m-%d %H:%M}", *keys])
