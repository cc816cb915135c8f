"""Process the same increments by an asset with expectations, by one without, and by the peer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.table import Table

from benchmarks.inputs.departures import (
    EVENTS,
    bring,
    land,
    source,
    with_expectations,
    without_expectations,
)
from benchmarks.measuring.counts import Counted, Counter
from benchmarks.measuring.measure import differing
from benchmarks.measuring.own import open_warehouse, restart
from benchmarks.measuring.terminal import console
from benchmarks.peers.hand_written import VALUES, StatefulQuery
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.run import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import end_source

WARMING = 10
"""The number of warm-up increments.

They cover more than a week, so that the expectation on volume can compare with the week before.
"""

SOURCE = source("departures")
CHECKED = with_expectations("with_checks", SOURCE)
UNCHECKED = without_expectations("without_checks", SOURCE)
PEER = "by_hand"
AIMS = {CHECKED.name: "at most 1.0 s, 0.7 x", UNCHECKED.name: "at most 0.6 s, 0.4 x"}


@dataclass
class _Figure:
    """The cost of one contender's increments.

    Args:
        seconds: the time of each increment.
        windows: the number of windows that each increment published.
        counted: the jobs, executions, and commits of one increment.
    """

    title: str
    seconds: list[float] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    counted: Counted = field(default_factory=Counted)


class Rounds:
    """Rounds. In each, all contenders process the same increment."""

    def __init__(self, settings: Settings, warming: int, increments: int) -> None:
        self.figures = {
            CHECKED.name: _Figure("Tidemark, four expectations"),
            UNCHECKED.name: _Figure("Tidemark, no expectations"),
            PEER: _Figure("stateful query with MERGE, by hand"),
        }
        self._settings = settings
        self._warming, self._increments = warming, increments
        self._landed = settings.home / "landed"
        self._done = 0

    def measure(self) -> None:
        """Run the warm-up rounds, then the measured rounds."""
        warehouse = open_warehouse(self._settings)
        with StatefulQuery(warehouse, PEER) as peer:
            for number in range(self._warming + self._increments):
                self._round(warehouse, peer, "" if number >= self._warming else "warming up, ")

    def count(self) -> None:
        """Count the jobs, executions, and commits of one round.

        The engine is restarted with Spark's event log. A warm-up round precedes the counted round.
        """
        counter = Counter(self._settings.home, Path(self._settings.warehouse, "bench"))
        self._settings = restart(self._settings, counter.java_options)
        warehouse = open_warehouse(self._settings)
        with StatefulQuery(warehouse, PEER) as peer:
            self._round(warehouse, peer, "warming up to be counted, ")
            self._bring(warehouse)
            for name, take in self._contenders(warehouse, peer).items():
                with console.status(f"counting: {name}"), counter.counting() as counted:
                    take()
                self.figures[name].counted = counted

    def differing(self) -> int:
        """End the source. Return how many windows of the assets differ from the peer's windows."""
        warehouse, wrong = open_warehouse(self._settings), 0
        end_source(warehouse, SOURCE)
        for asset in (CHECKED, UNCHECKED):
            with console.status(f"comparing {asset.name} with the peer"):
                incremental(warehouse, asset)
                ours, theirs = warehouse.path_of(asset.published_table), warehouse.path_of(PEER)
                wrong += differing(warehouse.spark, ours, theirs, "origin", VALUES)
        return wrong

    def table(self) -> Table:
        """Return a table of the figures."""
        published = median(self.figures[CHECKED.name].windows)
        table = Table(
            title=f"increments of {EVENTS:,} events in four arrivals, {published:.0f} windows: "
            f"medians of {self._increments}"
        )
        table.add_column("contender")
        for column in ("seconds", "min", "max", "ratio to peer", "target"):
            table.add_column(column, justify="right")
        for column in ("Spark jobs", "SQL executions", "Delta commits"):
            table.add_column(column, justify="right")
        peer = median(self.figures[PEER].seconds)
        for name, figure in self.figures.items():
            seconds, counted = figure.seconds, figure.counted
            share = "" if name == PEER else f"{median(seconds) / peer:.2f} x"
            table.add_row(
                figure.title,
                *(f"{s:.2f}" for s in (median(seconds), min(seconds), max(seconds))),
                share,
                AIMS.get(name, ""),
                *(
                    "?" if number is None else str(number)
                    for number in (counted.jobs, counted.executions, counted.commits)
                ),
            )
        return table

    def _round(self, warehouse: Warehouse, peer: StatefulQuery, warming: str) -> None:
        self._bring(warehouse)
        parts: list[str] = []
        for name, take in self._contenders(warehouse, peer).items():
            seconds, windows = take()
            parts.append(f"{name} {seconds:.2f} s")
            if not warming:
                self.figures[name].seconds.append(seconds)
                self.figures[name].windows.append(windows)
        console.print(f"  {warming}increment {self._done}: {', '.join(parts)}")

    def _bring(self, warehouse: Warehouse) -> None:
        self._done += 1
        bring(warehouse, SOURCE, self._landed, self._done)

    def _contenders(
        self, warehouse: Warehouse, peer: StatefulQuery
    ) -> dict[str, Callable[[], tuple[float, int]]]:
        """Return, by contender, a function that processes the newest increment.

        Each function returns the seconds that it took, and the number of windows that it wrote.
        """
        file = land(self._landed, self._done - 1)
        return {
            CHECKED.name: lambda: run(warehouse, CHECKED),
            UNCHECKED.name: lambda: run(warehouse, UNCHECKED),
            PEER: lambda: peer.take(file),
        }


def run(warehouse: Warehouse, asset: WindowedTransform) -> tuple[float, int]:
    """Run an asset on all new events. Return the seconds, and the number of published windows."""
    begin = perf_counter()
    facts = incremental(warehouse, asset)
    took = perf_counter() - begin
    assert facts is not None
    return took, facts.windows + facts.quarantined
