"""Run a transform over given arrivals, and assert its results.

A trial is a scenario: it is written to a file in the test's folder, so that `tidemark test` can
run a failed trial again. Trials run through the same code as all scenarios.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from io import StringIO
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import yaml
from rich.console import Console

from tidemark.base.instants import format_instant, parse_instant
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.draw.text import draw_svg, draw_text
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario
from tidemark_streaming.scenario.run.compare import (
    Difference,
    compare_results,
    find_differences,
    tabulate_differences,
)
from tidemark_streaming.scenario.run.simulate import Result, simulate_scenario

__all__ = ["Trial", "Trials"]

_WIDTH = 100

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trials:
    """The object that the fixture `tidemark_scenario` returns. It runs transforms over arrivals.

    Args:
        folder: the folder for scenarios, and for pictures of failed ones.
    """

    warehouse: Warehouse
    folder: Path

    def __call__(
        self,
        definition: Definition,
        arrivals: Sequence[Sequence[Row] | Row],
        *,
        ends: bool = True,
        clock_start: datetime | str | None = None,
        lookups: Mapping[str, Row] | None = None,
    ) -> "Trial":
        """Return a trial of a transform. Nothing runs until the trial's results are requested.

        Args:
            definition: a transform defined by `windowed_asset`.
            arrivals: the arrivals in order. Each is a list of rows, or an item of a scenario's
                `arrivals` such as `{"clock": "10 minutes"}`. If the transform reads a derived
                source, each must be such an item and name its source. A column that a row does not
                name is null; times without a zone are in UTC.
            ends: true if the source ends after the last arrival, which closes every window.
            clock_start: the processing clock at the beginning; 1970 by default.
            lookups: the lookup tables of the source by name, each with `columns` (types by name)
                and `rows`.

        Raises:
            ScenarioError: the arrivals, the clock or the lookup tables are not valid.
        """
        content: dict[str, Any] = {
            "name": definition.name,
            "asset": f"{getattr(definition, 'function', definition).__module__}:{definition.name}",
            **({} if lookups is None else {"lookups": lookups}),
            **({} if clock_start is None else {"clock_start": clock_start}),
            "arrivals": _to_items(arrivals),
            "open": not ends,
        }
        number = len(list(self.folder.glob("*.yaml"))) + 1
        path = self.folder / f"{definition.name}-{number}.yaml"
        return Trial(self.warehouse, definition, path, content)


class Trial:
    """A transform over given arrivals. Its assertions return the trial itself, so they can be
    chained."""

    def __init__(
        self, warehouse: Warehouse, definition: Definition, path: Path, content: Row
    ) -> None:
        self._warehouse = warehouse
        self._transform = definition
        self._path = path
        self._content = content
        self._scenario = self._load_scenario(content)

    @property
    def windows(self) -> list[dict[str, Any]]:
        """The published rows as in `tidemark test --json`, with times and decimals as text."""
        return self._batch_result["windows"]

    @property
    def panes(self) -> list[dict[str, Any]]:
        """The panes; empty if the transform has no accumulation."""
        return self._batch_result["panes"]

    @property
    def late(self) -> list[dict[str, Any]]:
        """The too-late events, each with the window that it missed."""
        return self._batch_result["late"]

    def expect(
        self,
        *,
        windows: Sequence[Row] | None = None,
        panes: Sequence[Row] | None = None,
        late: Sequence[Row] | None = None,
    ) -> "Trial":
        """Assert that the result has these rows and no others, in any order. Only the columns that
        a row names are compared. An argument that is None is not compared.

        Raises:
            AssertionError: the result differs; the message has the differences and a picture.
            ScenarioError: a row names a column that does not exist.
        """
        __tracebackhide__ = True
        parts = {"windows": windows, "panes": panes, "late": late}
        expected = {part: list(rows) for part, rows in parts.items() if rows is not None}
        scenario = self._load_scenario({**self._content, "expect": expected})
        assert scenario.expect is not None
        differences = find_differences(scenario.expect, self._batch_result, scenario.slack)
        if differences:
            raise AssertionError(
                self._describe_failure("not as expected", differences, self._batch_result)
            )
        return self

    def same_in_any_cut(self, seed: int = 0, cuts: int = 3) -> "Trial":
        """Assert that windows, panes and late events do not depend on the division of the arrivals
        into runs: all at once, one by one, and random divisions.

        Args:
            seed: the seed of the random divisions; the same seed gives the same divisions.
            cuts: the number of random divisions; fewer if there are not that many.

        Raises:
            AssertionError: the result of a division differs; the message has the division, the
                differences and a picture.
        """
        __tracebackhide__ = True
        arrivals = self._scenario.count_arrivals(self._scenario.source)
        ways = random_cuts(arrivals, seed, cuts)
        for way, result in zip(
            ways, simulate_scenario(self._warehouse, self._scenario, *ways), strict=True
        ):
            differences = compare_results(self._batch_result, result, self._scenario.slack)
            if differences:
                runs = ", ".join(map(str, way))
                title = f"not the same in runs of {runs} arrivals (seed {seed})"
                raise AssertionError(
                    self._describe_failure(title, differences, result, ("all at once", "in runs"))
                )
        return self

    @cached_property
    def _batch_result(self) -> Result:
        (result,) = simulate_scenario(self._warehouse, self._scenario, None)
        return result

    def _load_scenario(self, content: Row) -> Scenario:
        _write_scenario(self._path, content)
        return load_scenario(self._path, lambda _: self._transform)

    def _describe_failure(
        self,
        title: str,
        differences: Sequence[Difference],
        result: Result,
        sides: tuple[str, str] = ("expected", "came"),
    ) -> str:
        """Return a failure's message: a table of differences, a picture, and the paths of picture
        and scenario."""
        table = StringIO()
        Console(file=table, width=_WIDTH).print(tabulate_differences(differences, sides=sides))
        picture = self._path.with_suffix(".svg")
        picture.write_text(draw_svg(self._scenario, result), encoding="utf-8")
        return (
            f"{self._transform.name} is {title}:\n{table.getvalue()}\n"
            f"{draw_text(self._scenario, result)}\ndrawn: {picture}\nscenario: {self._path}"
        )


def random_cuts(arrivals: int, seed: int, count: int) -> list[tuple[int, ...]]:
    """Return divisions of arrivals into runs, each as the sizes of its runs. The first has one
    arrival per run; the others are random.

    Args:
        arrivals: the number of arrivals.
        seed: the seed of the random numbers; the same seed gives the same divisions.
        count: the number of random divisions; fewer if there are not that many.
    """
    cuts: list[tuple[int, ...]] = [(1,) * arrivals]
    possible = 2 ** max(arrivals - 1, 0) - 1
    chance = Random(seed)
    while len(cuts) <= min(count, possible):
        boundaries = [boundary for boundary in range(1, arrivals) if chance.random() < 0.5]
        cut = tuple(after - before for before, after in pairwise([0, *boundaries, arrivals]))
        if cut not in cuts:
            cuts.append(cut)
    return cuts


def _write_scenario(path: Path, content: Row) -> None:
    """Write a scenario that is given as Python values."""
    path.write_text(
        yaml.safe_dump(_to_plain(content), sort_keys=False, allow_unicode=True, width=1000),
        encoding="utf-8",
    )


def _to_items(arrivals: Sequence[Sequence[Row] | Row]) -> list[Row]:
    """Return the items of a scenario's `arrivals`: a list of rows becomes one arrival."""
    return [a if isinstance(a, Mapping) else {"rows": list(a)} for a in arrivals]


def _to_plain(value: Any) -> Any:  # noqa: ANN401
    match value:
        case Mapping():
            return {str(name): _to_plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_to_plain(part) for part in value]
        case datetime():
            return format_instant(parse_instant(value))
        case date() | Decimal():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
