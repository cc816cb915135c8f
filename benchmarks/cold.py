"""The first increment after an engine's start, with that start.

A process of its own starts the engine, opens a session and takes in one increment, as a command of
Tidemark's does; its whole life is measured. `python -m benchmarks.cold HOME PORT` is that process.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.table import Table

from benchmarks.inputs.departures import bring, checked, source
from benchmarks.measuring.own import opened
from benchmarks.measuring.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.quality import gx
from tidemark.run import incremental

SOURCE = source("departures")
ASSET = checked("with_checks", SOURCE)
HISTORY = 10
AIM = 12
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Start:
    """One cold start, in seconds.

    Args:
        whole: the process, from its start to its end.
        engine: until the engine answered.
        increment: the session and the increment.
    """

    whole: float
    engine: float
    increment: float


def bench(settings: Settings, starts: int) -> list[Start]:
    """Stop the engine and start it with an increment, so many times, after some history."""
    landed, measured = settings.home / "landed", list[Start]()
    for number in range(HISTORY + starts):
        warehouse = opened(settings)
        with console.status(f"increment {number + 1} lands"):
            bring(warehouse, SOURCE, landed, number + 1)
        if number < HISTORY:
            incremental(warehouse, ASSET)
            continue
        engine.stop(settings)
        with console.status(f"start {number - HISTORY + 1}"):
            measured.append(_started(settings))
        start = measured[-1]
        console.print(
            f"  start {len(measured)}: {start.whole:.1f} s, of which engine {start.engine:.1f} s, "
            f"increment {start.increment:.1f} s"
        )
    return measured


def table(starts: list[Start]) -> Table:
    """The figures."""
    told = Table(title=f"first increment after the engine's start: medians of {len(starts)}")
    for column in ("seconds", "of which engine", "increment", "aim"):
        told.add_column(column, justify="right")
    parts = [[s.whole for s in starts], [s.engine for s in starts], [s.increment for s in starts]]
    told.add_row(*(f"{median(part):.1f}" for part in parts), f"at most {AIM} s")
    return told


def _started(settings: Settings) -> Start:
    begin = perf_counter()
    told = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.cold"),
            *(str(settings.home), str(settings.engine_port), settings.engine_memory),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    whole = perf_counter() - begin
    return Start(whole, **json.loads(told.splitlines()[-1]))


def main() -> None:
    home, port, memory = sys.argv[1:]
    settings = Settings(home=Path(home), engine_port=int(port), engine_memory=memory)
    begin = perf_counter()
    engine.ensure(settings, while_starting=gx.import_library)
    answers = perf_counter()
    facts = incremental(opened(settings), ASSET)
    assert facts is not None
    took = {"engine": answers - begin, "increment": perf_counter() - answers}
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main()
