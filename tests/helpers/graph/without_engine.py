"""A warehouse and derived sources without an engine, for thousands of cases.

The steps, timelines, tables, schemas, fences and checks are those of the product. Only the rows of
derived sources are computed in plain Python, from the recorded steps and the bases' event logs.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helpers.graph.check import derive_node, timeline
from helpers.graph.home import Home
from tidemark.base.errors import DataError
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.engine.queries.planning import Planning
from tidemark.store.event_log.dead_letters import DEAD, dead_letters_of
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import INSTANT, Rows, delta_schema, spark_schema
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.derived import DerivedConnector

_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
_TYPES = {
    "timestamp": INSTANT,
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}


def arrow_type(kind: str) -> pa.DataType:
    return _HEADERS if kind.lower().startswith("array") else _TYPES[kind.lower()]


@dataclass(frozen=True)
class _NoRows:
    """A frame without rows, of which only the schema is known."""

    schema: StructType


class _NoEngine:
    """A session that knows the schemas of tables. A query fails, because it has nothing else."""

    def createDataFrame(self, _: Sequence[object], ddl: str) -> _NoRows:  # noqa: N802
        return _NoRows(spark_schema(delta_schema(_schema(ddl))))


class LocalWarehouse(Warehouse):
    """A warehouse without an engine."""

    def use_planning(self, planning: Planning) -> AbstractContextManager[None]:
        return nullcontext()


def local_warehouse(location: str, database: str) -> LocalWarehouse:
    return LocalWarehouse(cast(SparkSession, _NoEngine()), location, database, registered=False)


def _schema(ddl: str) -> pa.Schema:
    columns = dict[str, pa.DataType]()
    for text in re.split(r",\s*(?![^<]*>)", ddl):
        name, kind = text.strip().split(" ", 1)
        columns[name.strip("`")] = arrow_type(kind.strip())
    return pa.schema(columns)


@contextmanager
def plain_rows(home: Home) -> Iterator[None]:
    """Within the context, compute the rows of derived sources in plain Python."""

    def read(connector: DerivedConnector, _: object, chunks: Sequence[Chunk]) -> Rows:
        return _compute(home, connector.source, chunks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DerivedConnector, "read", read)
        yield


def _compute(home: Home, source: DerivedSource, chunks: Sequence[Chunk]) -> pa.Table:
    name = source.side_of or source.name
    for base in source.base_sources:
        if not home.store.has_table(base.log_table):
            Log(home.store, base).ensure_tables()
    # The tables of a source are created when its first arrival is accepted.
    recorded = [a.position for a in timeline(home, source)]
    positions = [*recorded, *(chunk.position for chunk in chunks)]
    computed = derive_node(home, name, [Step.of_position(p) for p in positions])
    first = len(recorded)
    rows = list[dict[str, Any]]()
    reasons = dict[int, str]()
    for index in range(len(chunks)):
        arrival = computed.arrivals[first + index]
        unjoined = [row for row in computed.unjoined if row["arrival"] == first + index]
        for position, row in enumerate([*arrival.rows, *unjoined]):
            place = {CHUNK: index, "position": position, "read_from": f"{source.name} 0#0"}
            if position >= len(arrival.rows):
                reasons[len(rows)] = f"{row['reason']} in {row['source']}"
                place["read_from"] = f"{row['source']} 0#0"
                row = {}
            rows.append({**dict.fromkeys(source.columns), **row, **place})
    types = {name: arrow_type(kind) for name, kind in source.columns.items()}
    types |= {CHUNK: pa.int64(), "position": pa.int64(), "read_from": pa.string()}
    try:
        table = pa.Table.from_pylist(rows, schema=pa.schema(types))
    except pa.ArrowInvalid as error:
        # The engine refuses values of another type, too.
        raise DataError(str(error)) from error
    if reasons:
        table = table.append_column(DEAD, dead_letters_of(len(rows), reasons, {}))
    return table
