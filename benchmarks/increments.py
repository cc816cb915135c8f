"""`python -m benchmarks.increments`: measure one increment on a warm engine.

Each increment has four arrivals with 1,000 events of about 65 windows. An asset with four
expectations, the same asset without expectations, and a hand-written stateful query process each
increment in turn. After some warm-up increments, the benchmark reports medians, and ratios to the
hand-written query. Then it restarts the engine with Spark's event log, to count the Spark jobs, SQL
executions, and Delta commits of one run.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import cold, growth, rounds
from benchmarks.measuring.own import own_engine
from benchmarks.measuring.terminal import console


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.increments", description=__doc__)
    parser.add_argument("--increments", type=int, default=10, help="how many are measured")
    parser.add_argument("--warming", type=int, default=rounds.WARMING, help="how many before these")
    parser.add_argument("--no-counts", action="store_true", help="do not count jobs and commits")
    parser.add_argument(
        "--cold", action="store_true", help="instead: the first increment after the engine's start"
    )
    parser.add_argument("--starts", type=int, default=3, help="how many starts --cold measures")
    parser.add_argument(
        "--growth",
        action="store_true",
        help="instead: a late run of an asset compared with the 50th",
    )
    parser.add_argument("--runs", type=int, default=1_000, help="which run --growth goes to")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    wrong = 0
    with own_engine("4g") as settings:
        if given.growth:
            grown = growth.bench(settings, given.runs)
            table, figures = growth.table(grown, given.runs), [asdict(g) for g in grown]
        elif given.cold:
            started = cold.bench(settings, given.starts)
            table, figures = cold.table(started), [asdict(s) for s in started]
        else:
            bench = rounds.Rounds(settings, given.warming, given.increments)
            bench.measure()
            if not given.no_counts:
                bench.count()
            wrong = bench.differing()
            table, figures = bench.table(), [asdict(f) for f in bench.figures.values()]
    console.print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    if wrong:
        console.print(f"{wrong:,} windows differ from the hand-written query's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
