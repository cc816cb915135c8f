"""Run a scenario through the code of ordinary runs, on temporary tables."""

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
from tidemark.engine.queries.planning import Planning
from tidemark.run.admission import Admission
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.ingest.ingest import furnish, ingest
from tidemark_streaming.scenario.read.lookups import Table
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.run.memory import MemoryConnector, create_frame
from tidemark_streaming.scenario.run.outcome import outcome
from tidemark_streaming.streams import continuous

Result = dict[str, Any]
_STARTING = Lock()

_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # For few rows, statistics for data skipping cost more than reading everything.
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


Way = int | Sequence[int] | None
"""The way to run a scenario: as a stream in runs of at most so many arrivals, in increments of
these numbers of arrivals, or, with None, as batch."""


def simulate(warehouse: Warehouse, scenario: Scenario, *ways: Way) -> list[Result]:
    """Run a scenario in several ways, in parallel over one event log.

    Args:
        warehouse: provides the location and a session to clone. The tables are in a temporary
            database.
        ways: how to run it.

    Returns:
        For each way the result in the format of `tidemark simulate --json`.
    """
    name = f"_simulations/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with small(own) as store:
            connector = MemoryConnector(scenario.source, scenario.arrivals)
            furnish(store, _ingestion(scenario, connector))
            arrived = [
                a for commit in ingest(store, connector, batch=None) for a in commit.arrivals
            ]

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


def _ingestion(scenario: Scenario, connector: MemoryConnector) -> Ingestion:
    """Return the connection of the source to a scenario's arrivals and lookup tables."""

    def rows(table: Table) -> Callable[[SparkSession], DataFrame]:
        return lambda spark: create_frame(spark, table.rows, table.columns)

    tables = {name: rows(table) for name, table in scenario.lookups.items()}
    return Ingestion(source=scenario.source, connector=lambda _: connector, lookups=tables)


def _run(warehouse: Warehouse, transform: Definition, way: Way) -> None:
    if way is None:
        backfill(warehouse, transform)
        return
    if not isinstance(way, int):
        for arrivals in way:
            incremental(warehouse, transform, limit=arrivals)
        return
    # A query's Python worker must start within ten seconds, which several at once may not manage.
    with _STARTING:
        query = continuous.start(warehouse, transform, admission=Admission(way), available_now=True)
    query.awaitTermination()


@contextmanager
def small(warehouse: Warehouse) -> Iterator[Warehouse]:
    """Yield the warehouse in its own session, which is configured for few rows."""
    # Only a session of Spark Connect has `cloneSession`; every session of Tidemark is one.
    spark = cast(Any, warehouse.spark).cloneSession()
    # A clone lacks this attribute, and can't be stopped without it.
    spark.release_session_on_close = True
    try:
        for name, value in _FEW_ROWS.items():
            spark.conf.set(name, value)
        own = Warehouse(spark, *warehouse.place)
        with own.planning(Planning.FEW):
            yield own
    finally:
        spark.stop()
