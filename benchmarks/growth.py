"""What age costs: a late run of an asset beside its 50th.

An engine gets quicker in its first hundred runs, which hides what grows. So a young asset of the
same definition, with a log of its own, makes its first runs beside the last ones of the old one: it
comes to its 50th when the old one comes to its last, in the same minutes of the same engine.
"""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.progress import TimeRemainingColumn
from rich.table import Table

from benchmarks.inputs.departures import bring, checked, sessions, source
from benchmarks.measuring.own import opened
from benchmarks.measuring.terminal import console, under_way
from benchmarks.rounds import run
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse

YOUNG = 50
AROUND = 10
"""How many runs a figure is the median of."""

AIM = 1.2
INGEST = "ingest"


@dataclass
class Grown:
    """The seconds of every run of one kind, of the old asset and the young one beside its end."""

    title: str
    old: list[float] = field(default_factory=list)
    young: list[float] = field(default_factory=list)

    @property
    def late(self) -> float:
        """A run at the end."""
        return median(self.old[-AROUND:])

    @property
    def beside(self) -> float:
        """The young one's run beside it."""
        return median(self.young[-AROUND:])

    def early(self) -> float:
        """The old one's own run when it was young."""
        at = min(YOUNG, len(self.old))
        return median(self.old[max(0, at - AROUND) : at])


class _Line:
    """A source with its assets, which go on by one increment at a time."""

    def __init__(self, warehouse: Warehouse, name: str, folder: Path) -> None:
        self._warehouse, self._folder, self._done = warehouse, folder, 0
        self._source = source(name)
        self._assets = {
            "tumbling": checked(f"{name}_hourly", self._source),
            "sessions": sessions(f"{name}_sessions", self._source),
        }

    def step(self) -> dict[str, float]:
        """The seconds of the next ingest, and of the run of each asset after it."""
        self._done += 1
        begin = perf_counter()
        bring(self._warehouse, self._source, self._folder, self._done)
        took = {INGEST: perf_counter() - begin}
        return took | {name: run(self._warehouse, a)[0] for name, a in self._assets.items()}


def bench(settings: Settings, runs: int) -> list[Grown]:
    """Go to a run of that number, with an ingest and a commit of its own before each."""
    warehouse = opened(settings)
    landed = settings.home / "landed"
    old, young = _Line(warehouse, "old", landed), _Line(warehouse, "young", landed)
    grown = {
        "tumbling": Grown("tumbling, four expectations"),
        "sessions": Grown("sessions, three expectations"),
        INGEST: Grown("ingest of four arrivals"),
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
            told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
            progress.update(task, advance=1, description=f"run {number} of {runs}: {told}")
            if number % AROUND == 0:
                console.print(f"  run {number}: {told}")
    return list(grown.values())


def table(grown: list[Grown], runs: int) -> Table:
    """The figures."""
    young = min(YOUNG, runs)
    told = Table(title=f"run {runs:,} beside run {young}, medians of {AROUND}: seconds")
    told.add_column("run")
    for column in (
        f"run {young} at its time",
        f"run {young} of a young asset beside",
        f"run {runs:,}",
        "beside the young one",
        "aim",
    ):
        told.add_column(column, justify="right")
    for kind in grown:
        told.add_row(
            kind.title,
            *(f"{seconds:.2f}" for seconds in (kind.early(), kind.beside, kind.late)),
            f"{kind.late / kind.beside:.2f} x",
            "" if kind.title.startswith(INGEST) else f"at most {AIM} x",
        )
    return told
