"""Measure how an asset's age affects its runs: compare a late run with the 50th run.

An engine gets faster in its first hundred runs, which would hide that runs of an old asset are
slower. Therefore a second, young asset with the same definition and its own event log makes its
first 50 runs in turn with the last 50 runs of the old asset, on the same engine.
"""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.progress import TimeRemainingColumn
from rich.table import Table

from benchmarks.inputs.departures import bring, sessions, source, with_expectations
from benchmarks.measuring.own import open_warehouse
from benchmarks.measuring.terminal import console, under_way
from benchmarks.rounds import run
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse

YOUNG = 50
AROUND = 10
"""The number of consecutive runs whose median is reported."""

AIM = 1.2
INGEST = "ingest"


@dataclass
class _Grown:
    """The seconds of all runs of one kind, for the old asset and for the young asset."""

    title: str
    old: list[float] = field(default_factory=list)
    young: list[float] = field(default_factory=list)

    @property
    def late(self) -> float:
        """The median of the old asset's last runs."""
        return median(self.old[-AROUND:])

    @property
    def young_median(self) -> float:
        """The median of the young asset's last runs, made in turn with the old one's last runs."""
        return median(self.young[-AROUND:])

    def early(self) -> float:
        """Return the median of the old asset's runs up to its 50th."""
        at = min(YOUNG, len(self.old))
        return median(self.old[max(0, at - AROUND) : at])


class _Line:
    """A source with its assets, and the number of increments so far."""

    def __init__(self, warehouse: Warehouse, name: str, folder: Path) -> None:
        self._warehouse, self._folder, self._done = warehouse, folder, 0
        self._source = source(name)
        self._assets = {
            "tumbling": with_expectations(f"{name}_hourly", self._source),
            "sessions": sessions(f"{name}_sessions", self._source),
        }

    def step(self) -> dict[str, float]:
        """Ingest the next increment, then run each asset. Return the seconds of each step."""
        self._done += 1
        begin = perf_counter()
        bring(self._warehouse, self._source, self._folder, self._done)
        took = {INGEST: perf_counter() - begin}
        return took | {name: run(self._warehouse, a)[0] for name, a in self._assets.items()}


def bench(settings: Settings, runs: int) -> list[_Grown]:
    """Run the old assets `runs` times, and the young assets in turn with the last of these runs."""
    warehouse = open_warehouse(settings)
    landed = settings.home / "landed"
    old, young = _Line(warehouse, "old", landed), _Line(warehouse, "young", landed)
    grown = {
        "tumbling": _Grown("tumbling, four expectations"),
        "sessions": _Grown("sessions, three expectations"),
        INGEST: _Grown("ingest of four arrivals"),
    }
    with under_way(TimeRemainingColumn()) as progress:
        task = progress.add_task("runs", total=runs)
        for number in range(1, runs + 1):
            took = old.step()
            for name, seconds in took.items():
                grown[name].old.append(seconds)
            if number > runs - YOUNG:
                for name, seconds in young.step().items():
                    grown[name].young.append(seconds)
            line = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
            progress.update(task, advance=1, description=f"run {number} of {runs}: {line}")
            if number % AROUND == 0:
                console.print(f"  run {number}: {line}")
    return list(grown.values())


def table(grown: list[_Grown], runs: int) -> Table:
    """Return a table of the figures."""
    young = min(YOUNG, runs)
    result = Table(title=f"run {runs:,} compared with run {young}, medians of {AROUND}: seconds")
    result.add_column("run")
    for column in (
        f"run {young} of the old asset",
        f"run {young} of the young asset",
        f"run {runs:,} of the old asset",
        "ratio to the young asset",
        "target",
    ):
        result.add_column(column, justify="right")
    for kind in grown:
        result.add_row(
            kind.title,
            *(f"{seconds:.2f}" for seconds in (kind.early(), kind.young_median, kind.late)),
            f"{kind.late / kind.young_median:.2f} x",
            "" if kind.title.startswith(INGEST) else f"at most {AIM} x",
        )
    return result
