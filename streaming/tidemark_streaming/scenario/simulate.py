"""Running a scenario: through the code of every run, on tables that are then removed."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import uuid4

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType, TimestampType

from tidemark.instant import iso
from tidemark.log import Arrival
from tidemark.run import backfill
from tidemark.warehouse import Warehouse
from tidemark_streaming import continuous
from tidemark_streaming.ingest import ingest
from tidemark_streaming.scenario.memory import MemoryFeed
from tidemark_streaming.scenario.parse import Scenario

Result = dict[str, Any]
_WINDOW = ("window_start", "window_end")


def simulate(warehouse: Warehouse, scenario: Scenario, arrivals_per_run: int | None) -> Result:
    """What comes out of a scenario, in the shape of `tidemark simulate --json`.

    Args:
        warehouse: its session and location are used; the tables are in a database of their own.
        arrivals_per_run: run it as a stream, in runs of so many arrivals; None runs it as batch.
    """
    name = f"_simulations/{uuid4().hex[:12]}"
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with own.interpreting():
            return _simulated(own, scenario, arrivals_per_run)
    finally:
        shutil.rmtree(own.path("").removeprefix("file://"), ignore_errors=True)


def _simulated(warehouse: Warehouse, scenario: Scenario, arrivals_per_run: int | None) -> Result:
    last: Arrival | None = None
    for commit in ingest(warehouse, MemoryFeed(scenario.source, scenario.arrivals), batch=None):
        last = commit.arrivals[-1]
    if last is not None and arrivals_per_run is None:
        backfill(warehouse, scenario.transform)
    elif last is not None:
        query = continuous.start(
            warehouse, scenario.transform, arrivals_per_run=arrivals_per_run, available_now=True
        )
        query.awaitTermination()
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda read: read(warehouse, scenario), (_windows, _panes, _late)))
    return {
        "name": scenario.name,
        "watermark": None if last is None else iso(last.after),
        **dict(zip(("windows", "panes", "late"), parts, strict=True)),
    }


def _windows(warehouse: Warehouse, scenario: Scenario) -> list[Result]:
    transform = scenario.transform
    facts = ("revision", "timing", "final", "late_events")
    names = [*_WINDOW, *transform.keys, *transform.aggregates, *facts]
    return _rows(warehouse, transform.table, names, [*_WINDOW, *transform.keys])


def _panes(warehouse: Warehouse, scenario: Scenario) -> list[Result]:
    transform = scenario.transform
    facts = ("pane", "timing", "last", "retraction")
    names = [*_WINDOW, *transform.keys, *facts, *transform.aggregates]
    order = [*_WINDOW, *transform.keys, "pane", F.desc("retraction")]
    return _rows(warehouse, transform.panes_table, names, order)


def _late(warehouse: Warehouse, scenario: Scenario) -> list[Result]:
    columns = list(scenario.source.columns)
    names = [*columns, *_WINDOW, "watermark", "lag_seconds"]
    order = [*_WINDOW, *scenario.transform.keys, "arrival", "position"]
    return _rows(warehouse, scenario.transform.late_table, names, order)


def _rows(
    warehouse: Warehouse, table: str, names: Sequence[str], order: Sequence[str | Column]
) -> list[Result]:
    if not warehouse.exists(table):
        return []
    rows = warehouse.read(table).orderBy(*order)
    schema = rows.schema
    kinds = {n: schema[n].dataType for n in names}
    found = rows.select(*(_portable(F.col(f"`{n}`"), k).alias(n) for n, k in kinds.items()))
    return [{n: _plain(r[n], k) for n, k in kinds.items()} for r in found.collect()]


def _portable(value: Column, kind: DataType) -> Column:
    """Instants as microseconds, which no client shifts to its own time zone."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda v: _portable(v, kind.elementType))
    if isinstance(kind, StructType):
        return F.struct(*(_portable(value[f.name], f.dataType).alias(f.name) for f in kind))
    return value


def _plain(value: Any, kind: DataType) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return iso(value)
    if isinstance(kind, ArrayType):
        return [_plain(v, kind.elementType) for v in value]
    if isinstance(kind, StructType):
        return {f.name: _plain(value[f.name], f.dataType) for f in kind}
    return str(value) if isinstance(value, Decimal | date) else value
