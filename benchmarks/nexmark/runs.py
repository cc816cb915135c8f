"""Run a query as batch, as stream in random cuts, and written by hand for Spark."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

from benchmarks.nexmark.domain import connectors, sources
from benchmarks.nexmark.queries import Query, Step
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.files.recording import Recording
from tidemark_streaming.ingest.ingest import end_source, ingest
from tidemark_streaming.ingest.play import play_files

SOURCES = (sources.persons, sources.auctions, sources.bids)
SPAN = "5 minutes"
MOST_ARRIVALS = 6
"""The maximum number of arrivals in a run of the stream."""


@dataclass(frozen=True)
class Outcome:
    """The result of one way to run a query.

    Args:
        seconds: the duration, without the time to write the event logs of the sources.
        rows: the rows of the query.
    """

    seconds: float
    rows: DataFrame


def land(
    warehouse: Warehouse, events: Sequence[pd.DataFrame], landing: Path, span: str = SPAN
) -> None:
    """Play persons, auctions and bids into their event logs, and end the sources.

    Args:
        events: the records of each source, with `arrives`.
        span: the time that an arrival covers.
    """
    given = (connectors.persons, connectors.auctions, connectors.bids)
    for source, records, known in zip(SOURCES, events, given, strict=True):
        recording = Recording(source, lambda records=records: records).to_ingestion
        ingestion = replace(recording, lookups=known.lookups)
        for _ in play_files(
            warehouse, ingestion, landing / source.name, Excerpt(span=span), batch=None
        ):
            pass
        end_source(warehouse, source)


def run_batch(warehouse: Warehouse, query: Query) -> Outcome:
    """Compute each definition once, from everything that has arrived."""

    def run(step: Step) -> None:
        if isinstance(step, DerivedSource):
            _derive(warehouse, step, None)
        else:
            backfill(warehouse, step)

    return _run(warehouse, query, run)


def run_stream(warehouse: Warehouse, query: Query, chance: random.Random) -> Outcome:
    """Compute each definition in increments of random numbers of arrivals."""

    def run(step: Step) -> None:
        if isinstance(step, DerivedSource):
            _derive(warehouse, step, chance.randint(1, MOST_ARRIVALS))
        else:
            while incremental(warehouse, step, limit=chance.randint(1, MOST_ARRIVALS)) is not None:
                pass

    return _run(warehouse, query, run)


def run_by_hand(warehouse: Warehouse, query: Query) -> Outcome:
    """Run the query that is written by hand, and write its rows to a Delta table."""
    tables = _events(warehouse)
    begun = time.perf_counter()
    rows = _query(warehouse, query.by_hand, tables)
    path = warehouse.path_of(f"{query.name}_by_hand")
    numbered = rows.toDF(*(f"c{n}" for n in range(len(rows.columns))))
    numbered.write.format("delta").mode("overwrite").save(path)
    seconds = time.perf_counter() - begun
    return Outcome(seconds, warehouse.spark.read.format("delta").load(path))


def differing(one: DataFrame, other: DataFrame) -> int:
    """Return the number of rows that only one of two results has."""
    names = [f"c{n}" for n in range(len(one.columns))]
    left, right = one.toDF(*names), other.toDF(*names)
    return left.exceptAll(right).count() + right.exceptAll(left).count()


def _derive(warehouse: Warehouse, source: DerivedSource, batch: int | None) -> None:
    connector = DerivedConnector(source, warehouse.location, warehouse.database)
    for _ in ingest(warehouse, connector, batch=batch):
        pass


def _run(warehouse: Warehouse, query: Query, run: Callable[[Step], None]) -> Outcome:
    # Queries share definitions, and the time of each query includes all definitions that it needs.
    for step in query.steps:
        for table in step.own_tables:
            warehouse.drop_table(table)
    begun = time.perf_counter()
    for step in query.steps:
        run(step)
    seconds = time.perf_counter() - begun
    tables = {
        str(table): warehouse.read_frame(table)
        for step in query.steps
        for table in step.own_tables
        if warehouse.has_table(table)
    }
    tables |= _events(warehouse)
    return Outcome(seconds, _query(warehouse, query.rows, tables))


def _events(warehouse: Warehouse) -> dict[str, DataFrame]:
    return {source.name: warehouse.read_frame(source.log_table) for source in SOURCES}


def _query(warehouse: Warehouse, text: str, tables: dict[str, DataFrame]) -> DataFrame:
    used: dict[str, Any] = {name: t for name, t in tables.items() if f"{{{name}}}" in text}
    return warehouse.spark.sql(text, **used)
