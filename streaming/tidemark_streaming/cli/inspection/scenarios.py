"""`tidemark test`: run windows over a stream that a scenario file describes."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, TidemarkError
from tidemark_streaming.cli.console import (
    message_console,
    print_done,
    print_error,
    result_console,
    show_progress,
)
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Json, print_json

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.scenario.read.parse import Scenario


_FAILED, _INVALID = 1, 2
"""The exit codes if a scenario fails, and if a file is not a valid scenario."""

_SIDE_BY_SIDE = 2
"""Number of scenarios that run at the same time; each mostly waits for the engine."""


def run_scenarios(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.", metavar="FILE...")],
    mode: Annotated[
        Literal["batch", "stream", "both"],
        typer.Option(help="Run as batch, as stream, or as both and compare."),
    ] = "both",
    arrivals_per_run: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Cut the stream into runs of N arrivals."),
    ] = 1,
    json: Json = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Draw arrivals, watermark, windows and panes.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw each as FOLDER/NAME.svg.", file_okay=False),
    ] = None,
) -> None:
    """Run scenarios: streams in text files, with the expected output.

    Each scenario runs through the production code, on temporary tables. A file that can't be read
    or run is reported, and the others still run. The exit code is 1 if batch and stream differ,
    `expect` is not met, or a scenario can't run; it is 2 if a file is not a valid scenario.

    Example: `tidemark test scenarios/late.yaml --draw`
    """
    from tidemark_streaming.scenario.draw.text import draw_text

    scenarios, refused = _load_scenarios(files)
    if not scenarios:
        raise typer.Exit(_INVALID)
    ways = list[int | None]()
    if mode != "stream":
        ways.append(None)
    if mode != "batch":
        ways.append(arrivals_per_run)
    store = Home().open_warehouse()
    results: list[dict[str, Any]] = []
    failed = 0
    for scenario, trial in _run_in_parallel(store, scenarios, ways):
        if trial.error is not None:
            failed += 1
            print_error(f"{scenario.name}: {trial.error}")
            results.append({"name": scenario.name, "error": str(trial.error)})
            continue
        first = trial.results[0]
        results.append(first)
        failed += not _has_passed(scenario, trial.results)
        if svg is not None:
            _write_drawing(scenario, first, svg)
        if draw and not json:
            typer.echo(draw_text(scenario, first))
        elif not json:
            _print_result(scenario, first)
    if json:
        print_json([*results, *refused])
    if failed:
        print_error(f"{failed} of {format_count(len(scenarios), 'scenario')} failed.")
    if refused:
        count = format_count(len(refused), "file")
        print_error(f"{count} of {len(files)} could not be read as a scenario.")
        raise typer.Exit(_INVALID)
    if failed:
        raise typer.Exit(_FAILED)


def _load_scenarios(files: list[Path]) -> tuple[list["Scenario"], list[dict[str, str]]]:
    """Return the scenarios in the files, and the errors of the files that have none, which are
    printed."""
    from tidemark_streaming.scenario.read.parse import load_scenario

    scenarios = list["Scenario"]()
    refused = list[dict[str, str]]()
    for file in files:
        try:
            scenarios.append(load_scenario(file))
        except TidemarkError as error:
            print_error(str(error))
            refused.append({"file": str(file), "error": str(error)})
    return scenarios, refused


@dataclass(frozen=True)
class _Trial:
    """The outcome of a scenario.

    Args:
        seconds: the duration of its runs.
        results: one result for each way to run it.
        error: why it can't run; None if it ran.
    """

    seconds: float
    results: list[dict[str, Any]]
    error: TidemarkError | None = None


def _run_in_parallel(
    store: "Warehouse", scenarios: list["Scenario"], ways: list[int | None]
) -> Iterator[tuple["Scenario", _Trial]]:
    """Run scenarios, two of them in parallel. Yield each with its outcome, in the given order.

    Args:
        ways: how to run each scenario: None as one batch, a number N as a stream in runs of N
            arrivals. An outcome has one result for each item, in this order.
    """
    from tidemark_streaming.scenario.run.simulate import simulate_scenario

    def run(scenario: "Scenario") -> _Trial:
        began = time.monotonic()
        try:
            results = simulate_scenario(store, scenario, *ways)
        except TidemarkError as error:
            return _Trial(time.monotonic() - began, [], error)
        return _Trial(time.monotonic() - began, results)

    pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
    try:
        running = [pool.submit(run, scenario) for scenario in scenarios]
        for scenario, result in zip(scenarios, running, strict=True):
            with show_progress(scenario.name):
                trial = result.result()
            if trial.error is None:
                print_done(scenario.name, trial.seconds)
            yield scenario, trial
    finally:
        pool.shutdown(cancel_futures=True)


def _has_passed(scenario: "Scenario", results: list[dict[str, Any]]) -> bool:
    from tidemark_streaming.scenario.run.compare import (
        compare_results,
        find_differences,
        tabulate_differences,
    )

    differing = compare_results(results[0], results[-1], scenario.slack)
    if differing:
        title = f"{scenario.name}: batch and stream differ"
        message_console().print(
            tabulate_differences(differing, title=title, sides=("batch", "stream"))
        )
    missed = []
    if scenario.expect is not None:
        missed = find_differences(scenario.expect, results[0], scenario.slack)
    if missed:
        message_console().print(
            tabulate_differences(missed, title=f"{scenario.name}: not as expected")
        )
    return not differing and not missed


def _write_drawing(scenario: "Scenario", result: dict[str, Any], folder: Path) -> None:
    from tidemark_streaming.scenario.draw.svg import draw_svg

    path = folder / f"{scenario.path.stem}.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(draw_svg(scenario, result), encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"The drawing '{path}' can't be written: {reason}.") from None
    message_console().print(f"drawn: {path}", soft_wrap=True)


def _print_result(scenario: "Scenario", result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tidemark_streaming.scenario.run.compare import rows_by_part

    for part, rows in rows_by_part(result).items():
        table = Table(title=f"{scenario.name}: {part}", title_justify="left")
        if not rows:
            result_console().print(f"{scenario.name}: no {part}")
            continue
        for column in rows[0]:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*("" if v is None else escape(str(v)) for v in row.values()))
        result_console().print(table)
