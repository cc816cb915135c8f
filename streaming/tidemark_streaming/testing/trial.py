"""A transform over given arrivals, and what a test says of it.

A trial is a scenario: it is written beside the test's other files, so that `tidemark simulate`
takes what failed, and it is run by the code that runs every scenario.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.compare import (
    Difference,
    differences,
    disagreement,
    explain,
)
from tidemark_streaming.scenario.draw import svg, text
from tidemark_streaming.scenario.parse import Scenario, load
from tidemark_streaming.scenario.simulate import Result, simulate
from tidemark_streaming.testing.cuts import cuts
from tidemark_streaming.testing.written import Row, items, write

__all__ = ["Trial", "Trials"]

_WIDTH = 100


@dataclass(frozen=True)
class Trials:
    """Runs transforms over given arrivals; what the fixture `tidemark_scenario` gives.

    Args:
        folder: for the scenarios, and for pictures of those that fail.
    """

    warehouse: Warehouse
    folder: Path

    def __call__(
        self,
        transform: Definition,
        arrivals: Sequence[Sequence[Row] | Row],
        *,
        ends: bool = True,
        clock_start: datetime | str | None = None,
        references: Mapping[str, Row] | None = None,
    ) -> "Trial":
        """A trial of a transform; nothing runs before it is asked what comes out.

        Args:
            transform: what `windowed_asset` defined.
            arrivals: in their order; each is a list of rows, or an item of a scenario's `arrivals`
                such as `{"clock": "10 minutes"}`. A column that a row does not name is null; times
                without a zone are UTC.
            ends: whether the stream ends after the last of them, which closes every window.
            clock_start: the processing clock at the beginning; 1970 by default.
            references: the tables that the source is joined with, each as `columns`, their types by
                name, and `rows`.

        Raises:
            ScenarioError: something is not lawful, in one sentence.
        """
        told: dict[str, Any] = {
            "name": transform.name,
            "asset": f"{getattr(transform, 'function', transform).__module__}:{transform.name}",
            **({} if references is None else {"references": references}),
            **({} if clock_start is None else {"clock_start": clock_start}),
            "arrivals": items(arrivals),
            "open": not ends,
        }
        number = len(list(self.folder.glob("*.yaml"))) + 1
        path = self.folder / f"{transform.name}-{number}.yaml"
        return Trial(self.warehouse, transform, path, told)


class Trial:
    """A transform over given arrivals. What is asserted of it gives it back, for the next one."""

    def __init__(self, warehouse: Warehouse, transform: Definition, path: Path, told: Row) -> None:
        self._warehouse = warehouse
        self._transform = transform
        self._path = path
        self._told = told
        self._scenario = self._load(told)

    @property
    def windows(self) -> list[dict[str, Any]]:
        """The published rows as `tidemark simulate --json` has them, times and decimals as text."""
        return self._batch["windows"]

    @property
    def panes(self) -> list[dict[str, Any]]:
        """The panes, of a transform that has an accumulation."""
        return self._batch["panes"]

    @property
    def late(self) -> list[dict[str, Any]]:
        """The events that came too late, with the window that each has missed."""
        return self._batch["late"]

    def expect(
        self,
        *,
        windows: Sequence[Row] | None = None,
        panes: Sequence[Row] | None = None,
        late: Sequence[Row] | None = None,
    ) -> "Trial":
        """Assert what comes out: these rows and no others, in any order; the columns that a row
        names are compared.

        Raises:
            AssertionError: something else does; it is told, and drawn.
            ScenarioError: a column that there is not.
        """
        __tracebackhide__ = True
        given = {"windows": windows, "panes": panes, "late": late}
        expected = {part: list(rows) for part, rows in given.items() if rows is not None}
        scenario = self._load({**self._told, "expect": expected})
        assert scenario.expect is not None
        found = differences(scenario.expect, self._batch, scenario.slack)
        if found:
            raise AssertionError(self._drawn("not as expected", found, self._batch))
        return self

    def same_in_any_cut(self, seed: int = 0, others: int = 3) -> "Trial":
        """Assert that windows, panes and late events do not depend on how the arrivals are cut into
        runs: all at once, one by one, and cut by chance.

        Args:
            seed: of chance; the same cuts each time, others with another.
            others: how many cuts by chance.

        Raises:
            AssertionError: a cut comes out otherwise; it is told which, how, and drawn.
        """
        __tracebackhide__ = True
        ways = cuts(len(self._scenario.arrivals), seed, others)
        for way, result in zip(ways, simulate(self._warehouse, self._scenario, *ways), strict=True):
            found = disagreement(self._batch, result, self._scenario.slack)
            if found:
                runs = ", ".join(map(str, way))
                title = f"not the same in runs of {runs} arrivals (seed {seed})"
                raise AssertionError(self._drawn(title, found, result, ("all at once", "in runs")))
        return self

    @cached_property
    def _batch(self) -> Result:
        (result,) = simulate(self._warehouse, self._scenario, None)
        return result

    def _load(self, told: Row) -> Scenario:
        write(self._path, told)
        return load(self._path, lambda _: self._transform)

    def _drawn(
        self,
        title: str,
        found: Sequence[Difference],
        result: Result,
        sides: tuple[str, str] = ("expected", "came"),
    ) -> str:
        """What is not right, as a table and a picture, and where both can be looked at again."""
        table = StringIO()
        Console(file=table, width=_WIDTH).print(explain(found, sides=sides))
        picture = self._path.with_suffix(".svg")
        picture.write_text(svg(self._scenario, result), encoding="utf-8")
        return (
            f"{self._transform.name} is {title}:\n{table.getvalue()}\n"
            f"{text(self._scenario, result)}\ndrawn: {picture}\nscenario: {self._path}"
        )
