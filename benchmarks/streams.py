"""`python -m benchmarks.streams`: measure many small streams on one engine.

Each of many sources has a stream. The benchmark measures the processor time and memory of the
engine and its workers while there are no new events. It measures ticks of the supervisor in
Dagster: the first tick, which finds the streams, and later ticks. It also measures the time until
the events of new files for all streams are published. For comparison, it measures one increment of
each asset in one process.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import dagster as dg
import psutil
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from rich.table import Table

from benchmarks.measuring.own import open_warehouse, own_engine
from benchmarks.measuring.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform, windowed_asset
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.run import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.jobs.stream_jobs import stream_job
from tidemark_assets.sensors.frame import create_sensor
from tidemark_assets.sensors.streams import supervisor_part
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.streams import continuous, desired_streams, queries

EVENTS = 100
PATIENCE = 600.0
_TICKS = 5


@dataclass(frozen=True)
class Cost:
    """The cost of one step.

    Args:
        seconds: the elapsed time.
        processors: the processor time of the engine, its workers, and this process, in seconds.
        memory: the memory of the engine and its workers after the step, in GB.
    """

    what: str
    seconds: float
    processors: float
    memory: float


@dataclass(frozen=True)
class Small:
    """A transform of a small source, and the connector of the source."""

    transform: WindowedTransform
    connector: FileConnector

    def land(self, minute: int) -> None:
        """Write a file with the events of a minute."""
        at = f"2026-01-01T00:{minute:02d}"
        rows = [f"{at}:{n % 60:02d}Z,{n % 5},{n}" for n in range(EVENTS)]
        folder = Path(self.connector.path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{minute:04d}.csv").write_text("\n".join(["at,shop,amount", *rows]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=50, help="the number of streams")
    parser.add_argument(
        "--seconds", type=float, default=60, help="the time to measure without new events"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine("4g") as settings:
        found = [_small(settings, n) for n in range(given.streams)]
        costs = list(_measure(settings, found, given.seconds))
    console.print(_table(costs, given.streams))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(c) for c in costs], indent=2) + "\n")
    return 0


def _small(settings: Settings, number: int) -> Small:
    source = Source(
        name=f"till_{number}",
        columns={"at": "TIMESTAMP", "shop": "STRING", "amount": "DOUBLE"},
        event_time="at",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )

    def takings(sales: DataFrame) -> DataFrame:
        return sales

    takings.__name__ = f"takings_{number}"
    makes = windowed_asset(
        source=source,
        keys=["shop"],
        window=Tumbling("10 seconds"),
        aggregates={"takings": agg.sum("amount")},
    )
    landing = settings.home / "landing" / source.name
    return Small(makes(takings), FileConnector(source, landing, options={"header": True}))


def _measure(settings: Settings, tills: list[Small], seconds: float) -> Iterator[Cost]:
    meter, warehouse = _Meter(settings), open_warehouse(settings)
    names = [till.transform.name for till in tills]
    here = settings.model_copy(update={"database": warehouse.database})
    _arrive(warehouse, tills, 0)
    with meter.over("the first increment of each asset, in one process"):
        _increments(warehouse, tills)
    yield meter.cost
    _arrive(warehouse, tills, 1)
    with meter.over("another increment of each asset, in one process"):
        _increments(warehouse, tills)
    yield meter.cost
    with meter.over("starting all streams"):
        for till in tills:
            session = continuous.session_id(here, till.transform.name)
            spark = engine.connect_session(settings, session)
            continuous.start_query(Warehouse(spark, settings.warehouse, "bench"), till.transform)
    yield meter.cost
    running = queries.find_running(here, names)
    if len(running) < len(tills):
        raise RuntimeError(f"{len(running)} streams run, of {len(tills)}.")
    with _supervise(here, tills) as tick:
        with meter.over("the supervisor's tick that finds the streams"):
            tick()
        yield meter.cost
        with meter.over(f"a later tick of the supervisor, mean of {_TICKS}"):
            for _ in range(_TICKS):
                tick()
        yield replace(
            meter.cost,
            seconds=round(meter.cost.seconds / _TICKS, 3),
            processors=round(meter.cost.processors / _TICKS, 3),
        )
    _publish(warehouse, tills, 2)
    with meter.over("streams without new events"):
        time.sleep(seconds)
    yield meter.cost
    with meter.over("a file for each, ingested and published by its stream"):
        _publish(warehouse, tills, 3)
    yield meter.cost


@contextmanager
def _supervise(settings: Settings, tills: list[Small]) -> Iterator[Callable[[], None]]:
    """Yield a function that runs one tick of the sensor that supervises the streams."""
    transforms = {till.transform.name: till.transform for till in tills}
    for name in transforms:
        desired_streams.request_stream(settings, name)
    job = stream_job("tills", transforms)
    part = supervisor_part("tills", transforms, job.name)
    sensor = create_sensor(PLAIN, "tills_reports", "Restarts streams.", [part], jobs=[job])
    resources, cursor = {"tidemark": TidemarkResource(settings)}, None
    folder = settings.home / "dagster"
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder), {"telemetry": {"enabled": False}}) as instance:

        def tick() -> None:
            nonlocal cursor
            context = dg.build_sensor_context(instance, cursor, resources=resources)
            result = sensor.evaluate_tick(context)
            if result.cursor is None:
                raise RuntimeError(f"The supervisor skipped its tick: {result.skip_message}")
            cursor = result.cursor

        yield tick


class _Meter:
    """Measures the cost of `with` blocks to the engine and its workers."""

    def __init__(self, settings: Settings) -> None:
        record = engine.ManagedProcess(settings.home, "engine").find_running()
        assert record is not None
        self._engine = psutil.Process(record.pid)
        self.cost: Cost

    @contextmanager
    def over(self, what: str) -> Iterator[None]:
        """Measure the `with` block. After the block, `cost` has the result."""
        begun, taken = time.monotonic(), self._processor_time()
        with console.status(what):
            yield
        took, held = time.monotonic() - begun, 0
        for each in self._all():
            held += each.memory_full_info().pss
        processors = self._processor_time() - taken
        self.cost = Cost(what, round(took, 2), round(processors, 2), round(held / 1e9, 2))
        console.print(self.cost)

    def _all(self) -> list[psutil.Process]:
        return [self._engine, *self._engine.children(recursive=True)]

    def _processor_time(self) -> float:
        """Return the processor time of the engine, its workers, ended workers, and this process."""
        times = [each.cpu_times() for each in self._all()]
        own = time.process_time()
        return own + sum(t.user + t.system + t.children_user + t.children_system for t in times)


def _arrive(warehouse: Warehouse, tills: list[Small], minute: int) -> None:
    for till in tills:
        till.land(minute)
        for _ in ingest(warehouse, till.connector):
            pass


def _increments(warehouse: Warehouse, tills: list[Small]) -> None:
    for till in tills:
        incremental(warehouse, till.transform)


def _publish(warehouse: Warehouse, tills: list[Small], minute: int) -> None:
    """Write and ingest one file per source, and wait until the streams publish the events."""
    before = _versions(warehouse, tills)
    _arrive(warehouse, tills, minute)
    deadline = time.monotonic() + PATIENCE
    while waiting := [n for n, v in _versions(warehouse, tills).items() if v <= before[n]]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} streams published nothing: {waiting}.")
        time.sleep(0.1)


def _versions(warehouse: Warehouse, tills: list[Small]) -> dict[str, int]:
    names = [till.transform.name for till in tills]
    return {name: DeltaTable(warehouse.path_of(name)).version() for name in names}


def _table(costs: list[Cost], streams: int) -> Table:
    table = Table(title=f"{streams} small sources, a stream each, on one engine")
    table.add_column("")
    for column in ("seconds", "each ms", "processor seconds", "each ms", "GB"):
        table.add_column(column, justify="right")
    for c in costs:
        each = (f"{1000 * value / streams:,.0f}" for value in (c.seconds, c.processors))
        table.add_row(
            c.what,
            f"{c.seconds:.2f}",
            next(each),
            f"{c.processors:.2f}",
            next(each),
            f"{c.memory:.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
