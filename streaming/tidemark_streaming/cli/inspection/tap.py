"""`tidemark tap`: show the rows at a step of a run."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.cli.console import NONE, err, out, print_facts
from tidemark_streaming.cli.context import Asset, Home
from tidemark_streaming.cli.interrupt import handle_termination
from tidemark_streaming.cli.output import as_json, print_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.verify.tap import TapResult
    from tidemark_streaming.snapshot.snapshot import NewRuns

_LOOK_EVERY = 0.5
"""Seconds between two polls of the ledger."""

_SHOWN = 20
"""Default number of rows of a run that are shown."""


def command(
    asset: Asset,
    name: Annotated[
        str | None,
        typer.Option("--step", metavar="NAME", help="The step; lists all steps if omitted."),
    ] = None,
    run: Annotated[
        int | None,
        typer.Option(
            min=0, help="The run, by `commit_number` of the table `runs`; the newest if omitted."
        ),
    ] = None,
    following: Annotated[
        bool, typer.Option("--follow", help="Show the rows of each new run until Ctrl-C.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows per run.")] = _SHOWN,
    json: Annotated[
        bool, typer.Option("--json", help="Each row as a line of JSON on stdout, for scripts.")
    ] = False,
) -> None:
    """Show the rows at a step of a run: read, prepared, classified, and so on to published.

    Without --step the command lists the steps. It computes the rows from the event log with the
    functions of the run itself, and does not change or slow the run.

    Example: `tidemark tap departures_hourly --step late --follow`
    """
    from tidemark.verify.tap import find_step, list_steps, tap

    if following and run is not None:
        raise DefinitionError("Use either --follow or --run, not both.")
    home = Home()
    transform = home.asset(asset)
    if name is None:
        _list({step.name: step.meaning for step in list_steps(transform)}, json=json)
        return
    step = find_step(transform, name)
    # Look for new runs before the engine starts, so that runs that end in the meantime are shown.
    runs = _runs(home, transform, run, following=following)
    store = home.warehouse()
    with suppress(*([KeyboardInterrupt] if following else [])):
        for row in runs:
            found = tap(store, transform, step, row["commit_number"], limit)
            (_lines if json else _show)(row, step.name, found)


def _list(known: Mapping[str, str], *, json: bool) -> None:
    if json:
        print_json([{"step": name, "meaning": meaning} for name, meaning in known.items()])
    else:
        print_facts(known)


def _runs(
    home: Home, transform: "Definition", number: int | None, *, following: bool
) -> Iterator[dict[str, Any]]:
    from tidemark_streaming.snapshot.snapshot import NewRuns

    snapshot, asset = home.snapshot(), transform.name
    if following:
        newer = NewRuns(snapshot, asset)
        newer.take()
        handle_termination()
        return _follow_runs(newer)
    runs = snapshot.runs_after(asset, -1 if number is None else number - 1)
    chosen = runs[-1:] if number is None else [r for r in runs if r["commit_number"] == number]
    if not chosen:
        raise DataError(
            f"'{asset}' has not run yet: `tidemark run {asset}` processes its source's arrivals."
            if number is None
            else f"'{asset}' has no run {number}: omit --run for its newest run."
        )
    return iter(chosen)


def _follow_runs(newer: "NewRuns") -> Iterator[dict[str, Any]]:
    while True:
        yield from newer.take()
        time.sleep(_LOOK_EVERY)


def _lines(run: Mapping[str, Any], step: str, found: "TapResult") -> None:
    for row in found.rows:
        values = {
            "run": run["run"],
            "commit_number": run["commit_number"],
            "step": step,
            "row": row,
        }
        typer.echo(as_json(values))


def _show(run: Mapping[str, Any], step: str, found: "TapResult") -> None:
    first, last = run["from_arrival"] + 1, run["through_arrival"]
    span = f"arrivals {first} to {last}" if first < last else f"arrival {last}"
    count = (
        f"the first {format_count(len(found.rows), 'row')}"
        if found.more
        else format_count(len(found.rows), "row")
    )
    console = out()
    console.print(f"[bold]run {run['commit_number']}[/] ({run['mode']}, {span}), {step}: {count}")
    for row in found.rows:
        pairs = (f"[dim]{name}=[/]{escape(_text(value))}" for name, value in row.items())
        console.print("  " + " ".join(pairs), soft_wrap=True)
    if found.more:
        err().print("There are more rows: increase --limit to show them.")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return f"({format_count(len(value), 'byte')})"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return NONE if value is None else str(value)
