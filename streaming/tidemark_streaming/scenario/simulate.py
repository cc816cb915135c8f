"""Running a scenario: through the code of every run, on tables that are then removed."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.engine.planning import Planning
from tidemark.run.admission import Admission
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming import continuous
from tidemark_streaming.feed import Inlet
from tidemark_streaming.ingest import furnish, ingest
from tidemark_streaming.scenario.memory import MemoryFeed, frame
from tidemark_streaming.scenario.outcome import outcome
from tidemark_streaming.scenario.parse import Scenario
from tidemark_streaming.scenario.references import Table

Result = dict[str, Any]
_STARTING = Lock()

_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Statistics by which readers pass over files cost more than reading all of a few rows.
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


Way = int | Sequence[int] | None
"""How a scenario is run: as a stream in runs of so many arrivals, in increments of these numbers of
arrivals, or, with None, as batch."""


def simulate(warehouse: Warehouse, scenario: Scenario, *ways: Way) -> list[Result]:
    """What comes out of a scenario that is run in several ways, side by side over one log.

    Args:
        warehouse: its location is used, and sessions like its own; the tables are in a database
            of their own.
        ways: how to run it.

    Returns:
        For each way what `tidemark simulate --json` gives.
    """
    name = f"_simulations/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with small(own) as store:
            feed = MemoryFeed(scenario.source, scenario.arrivals)
            furnish(store, _inlet(scenario, feed))
            arrived = [a for commit in ingest(store, feed, batch=None) for a in commit.arrivals]

        def run(number: int, way: Way) -> Result:
            name = f"{scenario.transform.name}_{number}" if number else scenario.transform.name
            transform = replace(scenario.transform, name=name)
            if not arrived:
                nothing: Result = {"windows": [], "panes": [], "late": []}
                return {"name": scenario.name, "watermark": None, **nothing}
            with small(own) as store:
                _run(store, transform, way)
            found = outcome(folder, transform)
            return {"name": scenario.name, "watermark": iso(arrived[-1].after), **found}

        with ThreadPoolExecutor(len(ways)) as pool:
            return list(pool.map(run, range(len(ways)), ways))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _inlet(scenario: Scenario, feed: MemoryFeed) -> Inlet:
    """The way in of a scenario's arrivals, with the tables that they are joined with."""

    def rows(table: Table) -> Callable[[SparkSession], DataFrame]:
        return lambda spark: frame(spark, table.rows, table.columns)

    tables = {name: rows(table) for name, table in scenario.references.items()}
    return Inlet(source=scenario.source, feed=lambda _: feed, references=tables)


def _run(warehouse: Warehouse, transform: Definition, way: Way) -> None:
    if way is None:
        backfill(warehouse, transform)
        return
    if not isinstance(way, int):
        for arrivals in way:
            incremental(warehouse, transform, limit=arrivals)
        return
    # A query's Python worker has ten seconds to come up, which several at once may not.
    with _STARTING:
        query = continuous.start(warehouse, transform, admission=Admission(way), available_now=True)
    query.awaitTermination()


@contextmanager
def small(warehouse: Warehouse) -> Iterator[Warehouse]:
    """The warehouse in a session of its own, which is set for few rows."""
    # Only a session of Spark Connect has it, which every session of Tidemark's is.
    spark = cast(Any, warehouse.spark).cloneSession()
    # A clone lacks this, and can't be stopped without.
    spark.release_session_on_close = True
    try:
        for name, value in _FEW_ROWS.items():
            spark.conf.set(name, value)
        own = Warehouse(spark, *warehouse.place)
        with own.planning(Planning.FEW):
            yield own
    finally:
        spark.stop()
