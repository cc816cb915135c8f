"""`make bench`: compare Tidemark with hand-written Spark queries and DuckDB in one session.

The same events are aggregated in tumbling, sliding, and session windows. A backfill is compared
with a hand-written batch query, and ten increments with a hand-written streaming query. The
contenders take turns. After one warm-up round, the benchmark reports medians, ratios, and peak
memory, and compares all windows with the windows of the batch query.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import PySparkException
from rich.table import Table

from benchmarks.inputs.events import ARRIVALS, EVENTS, PIECES, SOURCE, GeneratedConnector
from benchmarks.inputs.workloads import VALUES, WORKLOADS, Workload
from benchmarks.measuring.measure import (
    Measured,
    TimeLimitError,
    count,
    differing,
    measure_block,
    time_limit,
)
from benchmarks.measuring.own import open_warehouse, own_engine
from benchmarks.measuring.terminal import console, under_way
from benchmarks.peers.contenders import BACKFILL, BATCH, CONTENDERS, INCREMENTS, Bench, Contender
from tidemark import engine
from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark_streaming.ingest.ingest import end_source, ingest

Figures = dict[str, Measured]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repetitions", type=int, default=3, help="measured rounds")
    parser.add_argument("--warming", type=int, default=1, help="rounds before these")
    parser.add_argument("--windows", nargs="+", choices=[w.name for w in WORKLOADS])
    parser.add_argument("--limit", type=float, default=600, help="seconds for a contender's turn")
    parser.add_argument("--memory", default="4g", help="the engine's memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    if given.events < ARRIVALS or given.repetitions < 1:
        parser.error(f"at least {ARRIVALS} events and one repetition are needed.")
    chosen = [w for w in WORKLOADS if w.name in (given.windows or [w.name])]
    with own_engine(given.memory) as settings:
        arena = _Arena(settings, given.events, given.limit)
        arena.prepare()
        figures = {}
        for workload in chosen:
            figures[workload.name] = arena.compete(workload, given.warming, given.repetitions)
            console.print(_table(workload, figures[workload.name], given.events))
    if given.json is not None:
        plain = {name: {n: asdict(m) for n, m in f.items()} for name, f in figures.items()}
        given.json.write_text(json.dumps(plain, indent=2) + "\n")
    return 1 if any(m.differing for f in figures.values() for m in f.values()) else 0


class _Arena:
    """One engine and the events. The contenders of a workload take turns on them."""

    def __init__(self, settings: Settings, events: int, limit: float) -> None:
        self._settings = settings
        self._connector = GeneratedConnector(events)
        self._limit = limit
        self._bench = self._open()

    def prepare(self) -> None:
        """Write the events to the event log, and as Parquet files for the peers."""
        with under_way() as progress:
            task = progress.add_task("events as Parquet", total=None)
            for n in self._connector.land(self._bench.warehouse.spark, self._bench.landed):
                progress.update(task, description=f"events as Parquet: piece {n} of {PIECES}")
            for commit in ingest(
                self._bench.warehouse, self._connector, batch=self._connector.batch
            ):
                done = f"events into the log: arrival {commit.committed} of {commit.pending}"
                progress.update(task, description=done)
            end_source(self._bench.warehouse, SOURCE)
        console.print(f"  {self._connector.events:,} events have landed and are in the log")

    def compete(self, workload: Workload, warming: int, repetitions: int) -> Figures:
        """Run all rounds of a workload. Return the figures of its contenders, by name."""
        contenders = [c for c in CONTENDERS if c.only in (None, workload.name)]
        figures = {c.name: Measured() for c in contenders}
        for number in range(warming + repetitions):
            turn = f"round {number - warming + 1}" if number >= warming else "warming up"
            reference = None
            for contender in contenders:
                figure = figures[contender.name]
                if figure.trouble is not None:
                    continue
                if number == warming:
                    # Discard the figures of the warm-up rounds.
                    figure.seconds.clear()
                    figure.peak_bytes.clear()
                path = self._turn(workload, contender, figure, number, turn)
                if contender is BATCH:
                    reference = path
                if path is not None:
                    self._look(path, reference, figure)
        return figures

    def _turn(
        self, workload: Workload, contender: Contender, into: Measured, number: int, turn: str
    ) -> str | None:
        pid = engine.read_status(self._settings).pid
        assert pid is not None
        name = f"{workload.name}, {contender.name}"
        try:
            with under_way() as progress:
                progress.add_task(f"{name}, {turn}", total=None)
                with measure_block(into, pid), time_limit(self._limit):
                    path = contender.run(self._bench, workload, number)
        except TimeLimitError:
            into.trouble = f"not done after {self._limit:.0f} s"
        except (PySparkException, TidemarkError) as error:
            into.trouble = f"failed: {str(error).strip().splitlines()[0]}"
        else:
            console.print(f"  {name}, {turn}: {into.seconds[-1]:.2f} s")
            return path
        console.print(f"  {name}, {turn}: {into.trouble}")
        self._revive()
        return None

    def _look(self, path: str, reference: str | None, into: Measured) -> None:
        spark = self._bench.warehouse.spark
        into.rows = count(spark, path)
        if reference is not None:
            wrong = differing(spark, path, reference, "key", VALUES)
            # Report the worst round.
            into.differing = max(wrong, into.differing or 0)
            if wrong:
                console.print(f"  {wrong:,} windows differ from the batch query's")

    def _revive(self) -> None:
        """Stop the queries of an interrupted turn, and start the engine if it no longer runs."""
        spark = self._bench.warehouse.spark
        try:
            for query in spark.streams.active:
                query.stop()
            spark.interruptAll()
        except PySparkException as error:
            console.print(f"  starting the engine again: {str(error).splitlines()[0]}")
        engine.ensure_engine(self._settings)
        self._bench = self._open()

    def _open(self) -> Bench:
        return Bench(open_warehouse(self._settings), self._settings.home / "landed")


def _table(workload: Workload, figures: Figures, events: int) -> Table:
    table = Table(title=f"{workload.asset.window}, by 1,000 keys, {events:,} events: medians")
    columns = ("seconds", "events/s", "ratio to peer", "target", "rows", "differing", "peak memory")
    table.add_column("contender")
    for column in columns:
        table.add_column(column, justify="right")
    for contender in CONTENDERS:
        if contender.name not in figures:
            continue
        measure = figures[contender.name]
        aim = {
            BACKFILL: f"at most {workload.backfill_aim(events)} x",
            INCREMENTS: f"at most {workload.increments} x",
        }.get(contender, "")
        if measure.trouble is not None:
            table.add_row(contender.name, measure.trouble, "", "", aim)
            continue
        peer = figures.get(contender.peer or "")
        table.add_row(
            contender.name,
            f"{measure.median:.2f}",
            f"{events / measure.median:,.0f}",
            f"{measure.median / peer.median:.2f} x" if peer and peer.trouble is None else "",
            aim,
            f"{measure.rows:,}",
            "?" if measure.differing is None else f"{measure.differing:,}",
            f"{max(measure.peak_bytes) / 2**30:.1f} GiB",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
