"""`python -m benchmarks.checks`: measure the cost of expectations for a run of 10,000 window rows.

The same backfill and the same increment run in turn without expectations, with four, and with
seven. After one warm-up round, the benchmark reports medians, and by what share of the time
expectations slow a run down.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.table import Table

from benchmarks.inputs.events import SOURCE, GeneratedConnector
from benchmarks.inputs.workloads import PER_MINUTE
from benchmarks.measuring.measure import Measured
from benchmarks.measuring.own import open_warehouse, own_engine
from benchmarks.measuring.terminal import console
from tidemark import expect as q
from tidemark.base.settings import Settings
from tidemark.define.windows import Tumbling
from tidemark.expect import Expectation
from tidemark.run import backfill, incremental
from tidemark_streaming.ingest.ingest import end_source, ingest

EVENTS = 1_000_000
PLAIN = replace(PER_MINUTE, window=Tumbling("17 minutes"))
GENERAL = (q.not_null("key"), q.between("average", 0, 100), q.between("n", 1), q.not_null("most"))
WINDOWED = (q.unique_key(), q.matches_log(), q.volume_within(0.9, of="17 minutes", level="warning"))
FOUR, SEVEN = "4 of Great Expectations", "these 4, unique_key, matches_log, volume_within"
SUITES: dict[str, tuple[Expectation, ...]] = {
    "none": (),
    FOUR: GENERAL,
    SEVEN: GENERAL + WINDOWED,
}
AIMS = {FOUR: 0.3, SEVEN: 0.5}
MODES = {"backfill": backfill, "incremental": incremental}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checks", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine("4g") as settings:
        figures, rows = _bench(settings, given.events, given.repetitions)
    console.print(_table(figures, rows, given.events))
    if given.json is not None:
        plain = {f"{mode}, {suite}": m.seconds for (mode, suite), m in figures.items()}
        given.json.write_text(json.dumps(plain, indent=2) + "\n")
    return 0


def _bench(
    settings: Settings, events: int, repetitions: int
) -> tuple[dict[tuple[str, str], Measured], int]:
    warehouse = open_warehouse(settings)
    with console.status(f"generating {events:,} events"):
        for _ in ingest(warehouse, GeneratedConnector(events), batch=100):
            pass
        end_source(warehouse, SOURCE)
    figures = {(mode, suite): Measured() for mode in MODES for suite in SUITES}
    rows = 0
    for repetition in range(repetitions + 1):
        for number, suite in enumerate(SUITES):
            for mode, run in MODES.items():
                asset = replace(
                    PLAIN,
                    name=f"{mode}_{number}_{repetition}",
                    expectations=SUITES[suite],
                )
                begin = perf_counter()
                facts = run(warehouse, asset)
                took = perf_counter() - begin
                assert facts is not None
                rows = facts.windows + facts.quarantined
                console.print(f"  {mode}, {suite}: {took:.1f} s, {facts.quarantined} quarantined")
                if repetition:
                    figures[mode, suite].seconds.append(took)
    return figures, rows


def _table(figures: dict[tuple[str, str], Measured], rows: int, events: int) -> Table:
    table = Table(title=f"a run of {rows:,} window rows from {events:,} events, medians")
    for column in ("run", "expectations", "seconds", "added", "target"):
        table.add_column(column, justify="left" if column in ("run", "expectations") else "right")
    for (mode, suite), measure in figures.items():
        plain = figures[mode, "none"].median
        added = f"{measure.median / plain - 1:+.0%}" if suite != "none" else ""
        aim = f"at most +{AIMS[suite]:.0%}" if suite != "none" else ""
        table.add_row(mode, suite, f"{measure.median:.2f}", added, aim)
    return table


if __name__ == "__main__":
    sys.exit(main())
