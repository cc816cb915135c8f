"""Run a scenario through the code of ordinary runs, on temporary tables."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.engine.queries.planning import Planning
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import fill_lookup_tables, ingest
from tidemark_streaming.scenario.read.arrivals import Table
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.run.memory import MemoryConnector, create_frame
from tidemark_streaming.scenario.run.outcome import NOTHING, read_derived_outcome, read_outcome

Result = dict[str, Any]

_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # For few rows, statistics for data skipping cost more than reading everything.
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


_Way = int | Sequence[int] | None
"""How to run a scenario. An integer: as a stream, in runs of at most that many arrivals.
A sequence: in incremental runs of these numbers of arrivals. None: as batch."""


def simulate_scenario(warehouse: Warehouse, scenario: Scenario, *ways: _Way) -> list[Result]:
    """Run a scenario in several ways, in parallel, each over its own copy of the event logs.

    Args:
        warehouse: provides the location and a session to clone. The tables are in temporary
            databases.
        ways: the ways to run the scenario.

    Returns:
        For each way the result in the format of `tidemark test --json`.
    """
    root = f"_simulations/{uuid4().hex[:12]}"
    folder = Path(f"{warehouse.location}/{root}".removeprefix("file://"))

    def run_case(number: int, way: _Way) -> Result:
        database = f"{root}/{number}"
        own_tables = Warehouse(warehouse.spark, warehouse.location, database, registered=False)
        with open_small_session(own_tables) as store:
            for source in scenario.derived.values():
                _ingest_derived_source(store, source, way)
            last = Log(store, scenario.source).find_last_arrival()
            if last is not None and scenario.windowed is not None:
                _run_asset(store, scenario.windowed, way)
        result: Result = {"name": scenario.name, "watermark": None}
        if last is not None:
            result["watermark"] = format_instant(last.after)
        tables = f"{folder}/{number}"
        if scenario.windowed is not None:
            result |= NOTHING if last is None else read_outcome(tables, scenario.windowed)
        if scenario.derived:
            result |= read_derived_outcome(tables, list(scenario.derived.values()))
        return result

    try:
        logs = Warehouse(warehouse.spark, warehouse.location, f"{root}/0", False)
        with open_small_session(logs) as store:
            for source in scenario.sources.values():
                connector = MemoryConnector(source, scenario.arrivals_of(source))
                fill_lookup_tables(store, _create_ingestion(scenario, connector))
                list(ingest(store, connector, batch=None))
        for number in range(1, len(ways)):
            shutil.copytree(folder / "0", folder / str(number))
        with ThreadPoolExecutor(len(ways)) as pool:
            return list(pool.map(run_case, range(len(ways)), ways))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_ingestion(scenario: Scenario, connector: MemoryConnector) -> Ingestion:
    """Return the ingestion of a scenario's arrivals and lookup tables."""

    def create_reader(table: Table) -> Callable[[SparkSession], DataFrame]:
        return lambda spark: create_frame(spark, table.rows, table.columns)

    tables = {name: create_reader(table) for name, table in scenario.lookups.items()}
    return Ingestion(source=connector.source, connector=lambda _: connector, lookups=tables)


def _ingest_derived_source(warehouse: Warehouse, source: DerivedSource, way: _Way) -> None:
    """Ingest a derived source in commits as `way` specifies. For a chain, first run its asset."""
    asset = source.derivation.asset
    if asset is not None:
        _run_asset(warehouse, asset, way)
    connector = DerivedConnector(source)
    batch = None
    if isinstance(way, int):
        batch = way
    elif way is not None:
        for arrivals in way:
            next(ingest(warehouse, connector, batch=arrivals), None)
    list(ingest(warehouse, connector, batch=batch))


def _run_asset(warehouse: Warehouse, transform: Definition, way: _Way) -> None:
    if way is None:
        backfill(warehouse, transform)
        return
    if not isinstance(way, int):
        for arrivals in way:
            incremental(warehouse, transform, limit=arrivals)
        return
    # The runs of a streaming query, without the query: its Python worker takes seconds to start,
    # much longer than the runs of a scenario.
    while incremental(warehouse, transform, limit=way) is not None:
        pass


@contextmanager
def open_small_session(warehouse: Warehouse) -> Iterator[Warehouse]:
    """Yield the same warehouse with a new session, which is configured for few rows."""
    # Only sessions of Spark Connect have `cloneSession`; Tidemark has no other sessions.
    spark = cast(Any, warehouse.spark).cloneSession()
    # A clone lacks this attribute, and can't be stopped without it.
    spark.release_session_on_close = True
    try:
        for name, value in _FEW_ROWS.items():
            spark.conf.set(name, value)
        small_warehouse = Warehouse(spark, *warehouse.place)
        with small_warehouse.use_planning(Planning.FEW):
            yield small_warehouse
    finally:
        spark.stop()
