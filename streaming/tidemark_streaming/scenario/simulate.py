"""Running a scenario: through the code of every run, on tables that are then removed."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, cast
from uuid import uuid4

from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.engine.planning import Planning
from tidemark.run.runner import backfill
from tidemark.store.warehouse import Warehouse
from tidemark_streaming import continuous
from tidemark_streaming.ingest import ingest
from tidemark_streaming.scenario.memory import MemoryFeed
from tidemark_streaming.scenario.outcome import outcome
from tidemark_streaming.scenario.parse import Scenario

Result = dict[str, Any]
_STARTING = Lock()

_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Statistics by which readers pass over files cost more than reading all of a few rows.
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


def simulate(warehouse: Warehouse, scenario: Scenario, *ways: int | None) -> list[Result]:
    """What comes out of a scenario that is run in several ways, side by side over one log.

    Args:
        warehouse: its location is used, and sessions like its own; the tables are in a database
            of their own.
        ways: to run it as a stream, in runs of so many arrivals, or, with None, as batch.

    Returns:
        For each way what `tidemark simulate --json` gives.
    """
    name = f"_simulations/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with small(own) as store:
            feed = MemoryFeed(scenario.source, scenario.arrivals)
            arrived = [a for commit in ingest(store, feed, batch=None) for a in commit.arrivals]

        def run(number: int, arrivals_per_run: int | None) -> Result:
            transform = replace(scenario.transform, name=f"result_{number}")
            if not arrived:
                nothing: Result = {"windows": [], "panes": [], "late": []}
                return {"name": scenario.name, "watermark": None, **nothing}
            with small(own) as store:
                _run(store, transform, arrivals_per_run)
            found = outcome(folder, transform)
            return {"name": scenario.name, "watermark": iso(arrived[-1].after), **found}

        with ThreadPoolExecutor(len(ways)) as pool:
            return list(pool.map(run, range(len(ways)), ways))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(warehouse: Warehouse, transform: Definition, arrivals_per_run: int | None) -> None:
    if arrivals_per_run is None:
        backfill(warehouse, transform)
        return
    # A query's Python worker has ten seconds to come up, which several at once may not.
    with _STARTING:
        query = continuous.start(
            warehouse, transform, arrivals_per_run=arrivals_per_run, available_now=True
        )
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
