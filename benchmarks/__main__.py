"""`make bench`: Tidemark beside hand-written PySpark and DuckDB, in one session.

Three repetitions of each contender, in turn; medians, ratios and peak memory; results compared.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.contenders import BATCH, CONTENDERS, STREAMING
from benchmarks.events import EVENTS, SOURCE, GeneratedFeed
from benchmarks.measure import Measured, differing, measured
from benchmarks.own import own_engine
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest import end, ingest

PEERS = {"Tidemark backfill": (BATCH.name, 1.5), "Tidemark incremental": (STREAMING.name, 0.4)}
"""Contender to its peer and the ratio aimed at."""

console = Console()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine(console, "6g") as settings:
        return _bench(settings, given.events, given.repetitions, given.json)


def _bench(settings: Settings, events: int, repetitions: int, report: Path | None) -> int:
    spark = engine.session(settings)
    pid = engine.status(settings).pid
    assert pid is not None
    warehouse = Warehouse(spark, location=settings.warehouse, database="bench")
    bars = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    figures = {contender.name: Measured() for contender in CONTENDERS}
    wrong = 0
    with Progress(*bars, console=console) as progress:
        task = progress.add_task(f"generating {events:,} events", total=None)
        for _ in ingest(warehouse, GeneratedFeed(events), batch=10):
            pass
        end(warehouse, SOURCE)
        for repetition in range(repetitions):
            reference = ""
            for contender in CONTENDERS:
                progress.update(task, description=f"{contender.name}, {repetition + 1}")
                with measured(figures[contender.name], pid):
                    path = contender.run(warehouse, repetition)
                reference = reference or path
                different = differing(spark, path, reference)
                wrong += different
                seconds = figures[contender.name].seconds[-1]
                progress.console.print(
                    f"  {contender.name}: {seconds:.1f} s, {different} differing rows"
                )
    console.print(_table(figures, events))
    if report is not None:
        report.write_text(json.dumps({n: vars(m) for n, m in figures.items()}, indent=2) + "\n")
    return 1 if wrong else 0


def _table(figures: dict[str, Measured], events: int) -> Table:
    table = Table(title=f"{events:,} events, one-minute windows by 1,000 keys, medians")
    for column in ("contender", "seconds", "events/s", "beside its peer", "aim", "peak memory"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for name, measure in figures.items():
        peer, aim = PEERS.get(name, ("", 0.0))
        ratio = f"{measure.median / figures[peer].median:.2f} x" if peer else ""
        table.add_row(
            name,
            f"{measure.median:.1f}",
            f"{events / measure.median:,.0f}",
            ratio,
            f"at most {aim} x" if peer else "",
            f"{max(measure.peak_bytes) / 2**30:.1f} GiB",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
