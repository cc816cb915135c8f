"""`tidemark tap`: show the rows at a step of a run, or of an arrival of a source."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.cli.console import NONE, message_console, print_facts, result_console
from tidemark_streaming.cli.context import AssetOrSource, Home
from tidemark_streaming.cli.interrupt import handle_termination, suppress_interrupt
from tidemark_streaming.cli.output import as_json, print_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.define.source import Source
    from tidemark.store.event_log.arrival import Arrival
    from tidemark_streaming.snapshot.ledger_reader import NewRuns
    from tidemark_streaming.snapshot.tables import Tables

_LOOK_EVERY = 0.5
"""Seconds between two polls of the ledger or the timeline."""

_SHOWN = 20
"""Default number of rows of a run that are shown."""


@dataclass(frozen=True)
class _Choice:
    """The rows to show: the values of the command's options."""

    step: str | None
    number: int | None
    limit: int
    following: bool
    json: bool


def tap_rows(
    name: AssetOrSource,
    step: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The step; lists all steps if omitted."),
    ] = None,
    commit_number: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The run of an asset, by its `commit_number` in the table `runs`; the newest if "
            "omitted.",
        ),
    ] = None,
    arrival: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The arrival of a source, by its number; the newest if omitted.",
        ),
    ] = None,
    following: Annotated[
        bool,
        typer.Option("--follow", help="Show the rows of each new run or arrival until Ctrl-C."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows per run.")] = _SHOWN,
    json: Annotated[
        bool, typer.Option("--json", help="Each row as a line of JSON on stdout, for scripts.")
    ] = False,
) -> None:
    """Show the rows at a step of a run: read, prepared, classified, and so on to published.

    Without --step the command lists the steps. It computes the rows from the event log with the
    functions of the run itself, and does not change or slow the run.

    For a source, such as a join, the command shows the rows of an arrival: the events that it
    wrote, and for a derived source also those from which they were computed.

    Example: `tidemark tap departures_hourly --step late --follow`
    """
    from tidemark.define.source import Source

    if following and (commit_number is not None or arrival is not None):
        raise DefinitionError("--follow can't be used with --commit-number or --arrival.")
    home = Home()
    tapped = home.find_asset_or_source(name)
    if isinstance(tapped, Source):
        if commit_number is not None:
            raise DefinitionError(
                f"'{name}' is a source, which has no runs: use --arrival, or omit it for the "
                "newest arrival."
            )
        choice = _Choice(step, arrival, limit, following=following, json=json)
        _tap_source(home, tapped, choice)
        return
    if arrival is not None:
        raise DefinitionError(
            f"'{name}' is an asset, which has runs: use --commit-number, or omit it for the newest "
            "run."
        )
    choice = _Choice(step, commit_number, limit, following=following, json=json)
    _tap_asset(home, tapped, choice)


def _tap_asset(home: Home, definition: "Definition", choice: "_Choice") -> None:
    from tidemark.verify.tap import find_step, list_steps, tap_step

    if choice.step is None:
        steps = {step.name: step.meaning for step in list_steps(definition)}
        _print_steps(steps, json=choice.json)
        return
    step = find_step(definition, choice.step)
    # Look for new runs before the engine starts, so that runs that end in the meantime are shown.
    runs = _find_runs(home, definition, choice.number, following=choice.following)
    store = home.open_warehouse()
    with suppress_interrupt(following=choice.following):
        for row in runs:
            result = tap_step(store, definition, step, row["commit_number"], choice.limit)
            if choice.json:
                commit = {"run": row["run"], "commit_number": row["commit_number"]}
                _print_json_lines(commit, step.name, result.rows)
            else:
                _print_rows(_describe_run(row, step.name), result.rows, more=result.more)


def _tap_source(home: Home, source: "Source", choice: "_Choice") -> None:
    """Show the rows of arrivals, without the engine."""
    from tidemark_streaming.snapshot.source_rows import (
        find_arrival,
        find_source_step,
        list_source_steps,
        read_step,
    )
    from tidemark_streaming.snapshot.tables import Tables

    if choice.step is None:
        _print_steps(
            {step.name: step.meaning for step in list_source_steps(source)}, json=choice.json
        )
        return
    step = find_source_step(source, choice.step)
    tables = Tables.of_database(home.settings)
    if choice.following:
        handle_termination()
        arrivals = _follow_arrivals(tables, source)
    else:
        arrivals = iter([find_arrival(tables, source, choice.number)])
    with suppress_interrupt(following=choice.following):
        for arrival in arrivals:
            rows, more = read_step(tables, source, step, arrival, choice.limit)
            if choice.json:
                _print_json_lines({"arrival": arrival.arrival}, step.name, rows)
            else:
                _print_rows(f"[bold]arrival {arrival.arrival}[/], {step.name}", rows, more=more)


def _follow_arrivals(tables: "Tables", source: "Source") -> "Iterator[Arrival]":
    from tidemark_streaming.snapshot.source_rows import arrivals_after

    arrivals = arrivals_after(tables, source, -1)
    last = arrivals[-1].arrival if arrivals else -1
    while True:
        for arrival in arrivals_after(tables, source, last):
            last = arrival.arrival
            yield arrival
        time.sleep(_LOOK_EVERY)


def _print_steps(steps: Mapping[str, str], *, json: bool) -> None:
    if json:
        print_json([{"step": name, "meaning": meaning} for name, meaning in steps.items()])
    else:
        print_facts(steps)


def _find_runs(
    home: Home, definition: "Definition", number: int | None, *, following: bool
) -> Iterator[dict[str, Any]]:
    from tidemark_streaming.snapshot.ledger_reader import NewRuns

    snapshot = home.open_snapshot()
    asset = definition.name
    if following:
        newer = NewRuns(snapshot, asset)
        newer.take_runs()
        handle_termination()
        return _follow_runs(newer)
    if number is None:
        runs = snapshot.runs_after(asset, -1)
        if not runs:
            raise DataError(
                f"'{asset}' has not run yet: `tidemark run {asset}` processes its source's "
                "arrivals."
            )
        return iter([runs[-1]])
    for run in snapshot.runs_after(asset, number - 1):
        if run["commit_number"] == number:
            return iter([run])
    raise DataError(f"'{asset}' has no run {number}: omit --commit-number for its newest run.")


def _follow_runs(newer: "NewRuns") -> Iterator[dict[str, Any]]:
    while True:
        yield from newer.take_runs()
        time.sleep(_LOOK_EVERY)


def _print_json_lines(
    commit: Mapping[str, Any], step: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    for row in rows:
        typer.echo(as_json({**commit, "step": step, "row": row}))


def _describe_run(run: Mapping[str, Any], step: str) -> str:
    first = run["from_arrival"] + 1
    last = run["through_arrival"]
    span = f"arrivals {first} to {last}" if first < last else f"arrival {last}"
    return f"[bold]run {run['commit_number']}[/] ({run['mode']}, {span}), {step}"


def _print_rows(title: str, rows: Sequence[Mapping[str, Any]], *, more: bool) -> None:
    count = format_count(len(rows), "row")
    console = result_console()
    if more:
        count = f"the first {count}"
    console.print(f"{title}: {count}")
    for row in rows:
        line = " "
        for name, value in row.items():
            line += f" [dim]{name}=[/]{escape(_format_value(value))}"
        console.print(line, soft_wrap=True)
    if more:
        message_console().print("There are more rows: increase --limit to show them.")


def _format_value(value: object) -> str:
    if isinstance(value, bytes):
        return f"({format_count(len(value), 'byte')})"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if value is None:
        return NONE
    return str(value)
