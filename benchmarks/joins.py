"""`python -m benchmarks.joins`: measure interval joins, compared with hand-written Spark.

Orders and payments with 100,000 different keys are joined by key if they are at most five minutes
apart. A complete ingest of the join is compared with one batch join, and ten increments with a
stream-stream join. Each peer writes a Delta table. Then small increments of 1,000 orders and 1,000
payments are measured, on the same event logs and on short event logs.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.table import Table

from benchmarks.inputs.orders import (
    ARRIVALS,
    BEGIN,
    BOUND,
    DAY,
    PIECE_FILES,
    PIECES,
    Stream,
    stream,
)
from benchmarks.measuring.measure import Measured, measure_block
from benchmarks.measuring.own import open_warehouse, own_engine
from benchmarks.measuring.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest

KINDS = ("inner", "left")
BACKFILL_AIM, INCREMENTS_AIM, SMALL_AIM = 1.3, 0.7, 1.5
COLUMNS = ("k", "t", "v", "paid_at", "paid")
SHORT = 100_000
_REACH = 300_000_000
_SCHEMA = "t timestamp, k bigint, v bigint"

Run = Callable[[str, int, Measured], str]
"""A function that runs a join, given kind, round and figures, and returns the table's path."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joins", description=__doc__)
    parser.add_argument("--events", type=int, default=2_400_000, help="of each side")
    parser.add_argument("--repetitions", type=int, default=3, help="measured rounds")
    parser.add_argument("--warming", type=int, default=1, help="rounds before these")
    parser.add_argument("--small", type=int, default=10, help="measured small increments")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--memory", default="4g", help="the engine's memory")
    parser.add_argument("--no-increments", action="store_true", help="only the complete ingest")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine(given.memory) as settings:
        bench = Bench(settings, given.events)
        bench.prepare()
        for how in given.kinds:
            bench.compete(how, given.warming, given.repetitions, increments=not given.no_increments)
        if given.small:
            bench.small(given.small)
    console.print(bench.table())
    if given.json is not None:
        given.json.write_text(json.dumps(bench.plain(), indent=2) + "\n")
    return 1 if bench.wrong else 0


class Bench:
    """One engine with the two streams, in the event logs and as Parquet files."""

    def __init__(self, settings: Settings, events: int) -> None:
        self._settings, self._events = settings, events
        self._warehouse = open_warehouse(settings)
        self._landed = settings.home / "landed"
        self._sides = _sides("", events)
        self.figures = dict[str, Measured]()
        self.ratios = dict[str, tuple[float, float, float]]()
        self.wrong = 0

    def prepare(self) -> None:
        """Write the events to the event logs, and as Parquet files for the peers."""
        for side in self._sides:
            with console.status(f"{side.source.name} as Parquet and into the event log"):
                side.land(self._warehouse.spark, self._landed)
                self._bring(side)
        console.print(f"  {self._events:,} orders and payments have landed and are in the logs")

    def compete(self, how: str, warming: int, repetitions: int, *, increments: bool) -> None:
        """Let the contenders of one kind of join take turns. Count different results in `wrong`."""
        pairs: list[tuple[str, Run, int | None]] = [
            (f"{how}, batch join by hand", self._batch_by_hand, None),
            (f"{how}, complete ingest", self._complete, 0),
        ]
        if increments:
            pairs += [
                (f"{how}, stream-stream join by hand", self._stream_by_hand, None),
                (f"{how}, ten increments", self._increments, 2),
            ]
        for number in range(warming + repetitions):
            sums = list[tuple[int, int]]()
            for name, run, _ in pairs:
                figure = (
                    Measured() if number < warming else self.figures.setdefault(name, Measured())
                )
                path = run(how, number, figure)
                sums.append(self._sum(path))
                console.print(
                    f"  {name}{', warming up' if number < warming else ''}: "
                    f"{figure.seconds[-1]:.2f} s, {sums[-1][0]:,} rows"
                )
                figure.rows = sums[-1][0]
            for n, (name, _, peer) in enumerate(pairs):
                if peer is not None and sums[n] != sums[peer]:
                    self.wrong += 1
                    console.print(f"  the rows of {name} differ from those of its peer")
        for name, _, peer in pairs if repetitions else ():
            if peer is not None:
                aim = BACKFILL_AIM if peer == 0 else INCREMENTS_AIM
                own, other = self.figures[name], self.figures[pairs[peer][0]]
                processor = median(own.processor_seconds) / median(other.processor_seconds)
                self.ratios[name] = (own.median / other.median, processor, aim)

    def small(self, increments: int) -> None:
        """Measure small increments of a left join, on long and on short event logs."""
        for title, events in (("long", self._events), ("short", SHORT)):
            sides = self._sides if title == "long" else _sides("short_", events)
            source = _join(f"{title}_small", "left", sides)
            figure = self.figures[f"left, 1,000 + 1,000 events on {events:,}"] = Measured()
            for n in range(-5, increments):
                for side in sides:
                    self._bring(replace(side, arrivals=ARRIVALS + 5 + n))
                self._measure(source, figure if n >= 0 else Measured())

    def table(self) -> Table:
        """Return a table of the figures."""
        table = Table(title=f"interval join of {self._events:,} orders and payments: medians")
        table.add_column("contender")
        columns = ("seconds", "min", "max", "ratio to peer", "in processor time", "target")
        for column in (*columns, "rows", "peak memory"):
            table.add_column(column, justify="right")
        for name, figure in self.figures.items():
            share, processor, aim = self.ratios.get(name, (None, None, None))
            small = "events on" in name
            table.add_row(
                name,
                *(f"{s:.2f}" for s in (figure.median, min(figure.seconds), max(figure.seconds))),
                *("" if ratio is None else f"{ratio:.2f} x" for ratio in (share, processor)),
                f"at most {SMALL_AIM} s" if small else "" if aim is None else f"at most {aim} x",
                f"{figure.rows:,}",
                f"{max(figure.peak_bytes) / 2**30:.1f} GiB",
            )
        return table

    def plain(self) -> dict[str, object]:
        """Return all figures as values of JSON."""
        return {name: vars(figure) for name, figure in self.figures.items()}

    def _complete(self, how: str, number: int, figure: Measured) -> str:
        source = _join(f"{how}_complete_{number}", how, self._sides)
        self._measure(source, figure)
        return self._warehouse.path_of(source.log_table)

    def _increments(self, how: str, number: int, figure: Measured) -> str:
        sides, parts = _sides(f"{how}_{number}_", self._events), Measured()
        source = _join(f"{how}_increments_{number}", how, sides)
        for n in range(1, PIECES + 1):
            for side in sides:
                self._bring(replace(side, arrivals=ARRIVALS * n // PIECES))
            self._measure(source, parts)
        figure.seconds.append(sum(parts.seconds))
        figure.processor_seconds.append(sum(parts.processor_seconds))
        figure.peak_bytes.append(max(parts.peak_bytes))
        return self._warehouse.path_of(source.log_table)

    def _batch_by_hand(self, how: str, number: int, figure: Measured) -> str:
        path = self._warehouse.path_of(f"{how}_batch_by_hand_{number}")
        reader = self._warehouse.spark.read.schema(_SCHEMA)
        orders, payments = (
            reader.parquet(f"{self._landed}/{side.source.name}/piece_*") for side in self._sides
        )
        with self._measure_time(figure):
            _by_hand(orders, payments, how).write.format("delta").save(path)
        return path

    def _stream_by_hand(self, how: str, number: int, figure: Measured) -> str:
        spark = self._warehouse.spark
        path = self._warehouse.path_of(f"{how}_stream_by_hand_{number}")
        provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", PIECE_FILES)
        orders, payments = (
            reader.parquet(f"{self._landed}/{side.source.name}/piece_*").withWatermark("t", BOUND)
            for side in self._sides
        )
        with self._measure_time(figure):
            query = (
                _by_hand(orders, payments, how)
                .writeStream.option("checkpointLocation", f"{path}_checkpoint")
                .trigger(availableNow=True)
                .format("delta")
                .start(path)
            )
            while query.isActive:
                time.sleep(0.05)
        if (error := query.exception()) is not None:
            raise error
        shutil.rmtree(f"{path}_checkpoint")
        return path

    def _measure(self, source: DerivedSource, figure: Measured) -> None:
        """Measure the ingest of everything that is pending for a join."""
        connector = DerivedConnector(source)
        with self._measure_time(figure):
            commits = list(ingest(self._warehouse, connector, batch=None))
        figure.rows = sum(a.rows for commit in commits for a in commit.arrivals)

    def _measure_time(self, figure: Measured) -> AbstractContextManager[None]:
        pid = engine.read_status(self._settings).pid
        assert pid is not None
        return measure_block(figure, pid)

    def _bring(self, side: Stream) -> None:
        for _ in ingest(self._warehouse, side, batch=ARRIVALS // PIECES):
            pass

    def _sum(self, path: str) -> tuple[int, int]:
        """Return the number of rows, and the sum of their hashes.

        Only rows with a time before the last piece count: of later orders without a payment,
        neither a stream nor an ingest has emitted all yet.
        """
        end = BEGIN + DAY * (PIECES - 1) // PIECES - 2 * _REACH
        rows = self._warehouse.spark.read.format("delta").load(path)
        rows = rows.where(F.unix_micros("t") < end)
        hashed = F.xxhash64(*COLUMNS).cast("decimal(38, 0)")
        count, total = rows.agg(F.count("*"), F.sum(hashed)).collect()[0]
        return count, int(total or 0)


def _sides(prefix: str, events: int) -> tuple[Stream, Stream]:
    return stream(f"{prefix}orders", events, 1), stream(f"{prefix}payments", events, 2)


def _join(name: str, how: str, sides: tuple[Stream, Stream]) -> DerivedSource:
    left, right = (side.source for side in sides)
    return join(
        name=name,
        left=left,
        right=right,
        on=["k"],
        within=Between("-5 minutes", "5 minutes"),
        how=how,
        rename={f"{right.name}.t": "paid_at", f"{right.name}.v": "paid"},
    )


def _by_hand(orders: DataFrame, payments: DataFrame, how: str) -> DataFrame:
    """Return the same join, written by hand."""
    o, p = orders.alias("o"), payments.alias("p")
    reach = F.expr("p.t BETWEEN o.t - INTERVAL 5 MINUTES AND o.t + INTERVAL 5 MINUTES")
    joined = o.join(
        p, (F.col("o.k") == F.col("p.k")) & reach, "left_outer" if how == "left" else how
    )
    return joined.select(
        "o.k", "o.t", "o.v", F.col("p.t").alias("paid_at"), F.col("p.v").alias("paid")
    )


if __name__ == "__main__":
    sys.exit(main())
