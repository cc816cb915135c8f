"""Measure the first increment after the engine's start, including that start.

A separate process starts the engine, opens a session, and runs one increment, as a command of
Tidemark does. The duration of the whole process is measured. The benchmark starts this process as
`python -m benchmarks.cold HOME PORT MEMORY`.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.table import Table

from benchmarks.inputs.departures import bring, source, with_expectations
from benchmarks.measuring.own import open_warehouse
from benchmarks.measuring.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.quality import gx
from tidemark.run import incremental

SOURCE = source("departures")
ASSET = with_expectations("with_checks", SOURCE)
HISTORY = 10
AIM = 12
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Start:
    """One cold start, in seconds.

    Args:
        whole: the duration of the process.
        engine: the time until the engine answers.
        increment: the time to open the session and run the increment.
    """

    whole: float
    engine: float
    increment: float


def bench(settings: Settings, starts: int) -> list[Start]:
    """Run `HISTORY` increments. Then measure `starts` times an engine start with one increment."""
    landed, measured = settings.home / "landed", list[Start]()
    for number in range(HISTORY + starts):
        warehouse = open_warehouse(settings)
        with console.status(f"increment {number + 1} lands"):
            bring(warehouse, SOURCE, landed, number + 1)
        if number < HISTORY:
            incremental(warehouse, ASSET)
            continue
        engine.stop_engine(settings)
        with console.status(f"start {number - HISTORY + 1}"):
            measured.append(_start_and_run(settings))
        start = measured[-1]
        console.print(
            f"  start {len(measured)}: {start.whole:.1f} s, of which engine {start.engine:.1f} s, "
            f"increment {start.increment:.1f} s"
        )
    return measured


def table(starts: list[Start]) -> Table:
    """Return a table of the figures."""
    result = Table(title=f"first increment after the engine's start: medians of {len(starts)}")
    for column in ("seconds", "of which engine", "increment", "target"):
        result.add_column(column, justify="right")
    parts = [[s.whole for s in starts], [s.engine for s in starts], [s.increment for s in starts]]
    result.add_row(*(f"{median(part):.1f}" for part in parts), f"at most {AIM} s")
    return result


def _start_and_run(settings: Settings) -> Start:
    begin = perf_counter()
    output = subprocess.run(
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
    return Start(whole, **json.loads(output.splitlines()[-1]))


def main() -> None:
    home, port, memory = sys.argv[1:]
    settings = Settings(home=Path(home), engine_port=int(port), engine_memory=memory)
    begin = perf_counter()
    engine.ensure_engine(settings, while_starting=gx.import_library)
    answers = perf_counter()
    facts = incremental(open_warehouse(settings), ASSET)
    assert facts is not None
    took = {"engine": answers - begin, "increment": perf_counter() - answers}
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main()
