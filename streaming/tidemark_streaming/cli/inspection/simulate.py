"""`tidemark simulate`: run windows over a stream that a scenario file describes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark_streaming.cli.console import err, out, print_error, step
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Json, print_json

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.scenario.read.parse import Scenario


_SIDE_BY_SIDE = 2
"""Number of scenarios that run at the same time; each mostly waits for the engine."""


def command(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.", metavar="FILE...")],
    run: Annotated[
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

    Each scenario runs through the production code, on temporary tables. The exit code is 1 if batch
    and stream differ or `expect` is not met, and 2 if a file is not a valid scenario.

    Example: `tidemark simulate scenarios/late.yaml --draw`
    """
    from tidemark_streaming.scenario.draw.text import text
    from tidemark_streaming.scenario.read.parse import load

    scenarios = [load(file) for file in files]
    ways: list[int | None] = [] if run == "stream" else [None]
    ways += [] if run == "batch" else [arrivals_per_run]
    store = Home().warehouse()
    results: list[dict[str, Any]] = []
    failed = 0
    for scenario, found in _simulate(store, scenarios, ways):
        results.append(found[0])
        failed += not _right(scenario, found)
        if svg is not None:
            _draw(scenario, found[0], svg)
        if draw and not json:
            typer.echo(text(scenario, found[0]))
        elif not json:
            _show(scenario, found[0])
    if json:
        print_json(results)
    if failed:
        print_error(f"{failed} of {format_count(len(scenarios), 'scenario')} failed.")
        raise typer.Exit(1)


def _simulate(
    store: "Warehouse", scenarios: list["Scenario"], ways: list[int | None]
) -> Iterator[tuple["Scenario", list[dict[str, Any]]]]:
    """Yield each scenario, in order, with its results. Several scenarios run in parallel.

    Args:
        ways: None for a batch; a number for a stream in runs of that many arrivals. There is one
            result for each.
    """
    from tidemark_streaming.scenario.run.simulate import simulate

    pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
    try:
        running = [pool.submit(simulate, store, scenario, *ways) for scenario in scenarios]
        for scenario, result in zip(scenarios, running, strict=True):
            with step(scenario.name):
                found = result.result()
            yield scenario, found
    finally:
        pool.shutdown(cancel_futures=True)


def _right(scenario: "Scenario", found: list[dict[str, Any]]) -> bool:
    from tidemark_streaming.scenario.run.compare import compare_results, explain, find_differences

    differing = compare_results(found[0], found[-1], scenario.slack)
    if differing:
        title = f"{scenario.name}: batch and stream differ"
        err().print(explain(differing, title=title, sides=("batch", "stream")))
    expected = scenario.expect
    missed = [] if expected is None else find_differences(expected, found[0], scenario.slack)
    if missed:
        err().print(explain(missed, title=f"{scenario.name}: not as expected"))
    return not differing and not missed


def _draw(scenario: "Scenario", result: dict[str, Any], folder: Path) -> None:
    from tidemark_streaming.scenario.draw.svg import svg

    path = folder / f"{scenario.path.stem}.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(scenario, result), encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"The drawing '{path}' can't be written: {reason}.") from None
    err().print(f"drawn: {path}", soft_wrap=True)


def _show(scenario: "Scenario", result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tidemark_streaming.scenario.run.compare import parts

    for part, rows in parts(result).items():
        table = Table(title=f"{scenario.name}: {part}", title_justify="left")
        if not rows:
            out().print(f"{scenario.name}: no {part}")
            continue
        for column in rows[0]:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*("" if v is None else escape(str(v)) for v in row.values()))
        out().print(table)
