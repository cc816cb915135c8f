"""A source gains columns while old and new files and records arrive. A source that can't continue
does not stop others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.data.landing import HEADER, SOURCE, T0, clock, connector, land, land_some, log_rows
from helpers.data.runs import dies
from helpers.data.support import PER_MINUTE
from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.source import Source
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.snapshot.snapshot import Snapshot

WIDER = replace(SOURCE, columns={**SOURCE.columns, "unit": "STRING", "place": "STRING"})
COUNTED = replace(
    PER_MINUTE, source=SOURCE, aggregates={"n": agg.count(), "most": agg.max("value")}
)

_DYING = """
import json
import sys
from dataclasses import replace
from pathlib import Path
from helpers.data.landing import connector
from pyspark.sql import SparkSession
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest

_, remote, place, folder, columns = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
came = connector(Path(folder))
list(ingest(warehouse, replace(came, source=replace(came.source, columns=json.loads(columns)))))
"""


def files(
    folder: Path, source: Source, form: Literal["csv", "json", "parquet"] = "csv"
) -> FileConnector:
    options = {"header": True} if form == "csv" else {}
    return FileConnector(source, folder, form, options)


def values(warehouse: Warehouse) -> list[tuple[object, ...]]:
    rows = warehouse.load_rows(SOURCE.log_table).sort_by([("arrival", "ascending")])
    return [(r["value"], r["unit"], r["place"]) for r in rows.to_pylist()]


def versions(warehouse: Warehouse, source: Source = SOURCE) -> list[int]:
    return [a.schema_version for a in Log(warehouse, source).read_timeline()]


def write(folder: Path, form: str, number: int, row: dict[str, object]) -> None:
    """Write a file with one row and these additional columns."""
    at = {"at": clock(number * 60), "sensor": "a", "value": number}
    told = at | row
    if form == "csv":
        text = f"{','.join(told)}\n{','.join(str(v) for v in told.values())}\n"
        land(folder, f"{number}.csv", text, number * 60)
    elif form == "json":
        land(folder, f"{number}.json", json.dumps(told) + "\n", number * 60)
    else:
        sink = pa.BufferOutputStream()
        instant = pa.array([(T0 + number * 60) * 1_000_000]).cast(pa.timestamp("us", "UTC"))
        others = {k: pa.array([v], pa.int32() if k == "value" else None) for k, v in told.items()}
        pq.write_table(pa.table(others | {"at": instant}), sink)
        land(folder, f"{number}.parquet", sink.getvalue().to_pybytes(), number * 60)


@pytest.mark.parametrize("form", mostly_nightly(["csv", "json", "parquet"]))
def test_files_with_old_and_new_columns_are_ingested_together(
    warehouse: Warehouse, engine: Settings, tmp_path: Path, form: Literal["csv", "json", "parquet"]
) -> None:
    folder = tmp_path / "in"
    write(folder, form, 0, {})
    list(ingest(warehouse, files(folder, SOURCE, form)))
    incremental(warehouse, COUNTED)
    write(folder, form, 1, {"unit": "C"})
    write(folder, form, 2, {})
    write(folder, form, 3, {"unit": "F", "place": "P"})
    list(ingest(warehouse, files(folder, WIDER, form), batch=None))
    assert values(warehouse) == [
        (0, None, None), (1, "C", None), (2, None, None), (3, "F", "P")
    ]  # fmt: skip
    assert versions(warehouse) == [1, 2, 2, 2]
    snapshot = Snapshot(engine.model_copy(update={"database": warehouse.database}))
    assert snapshot.read_source(WIDER).schema_version == 2
    for asset in (COUNTED, replace(COUNTED, source=WIDER)):
        incremental(warehouse, asset)
        assert check_parity(warehouse, asset).is_equal


def test_a_header_must_be_a_prefix_of_the_columns(warehouse: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    land(folder, "0.csv", "at,sensor,place\n", 0)
    with pytest.raises(DataError, match="its header must name the columns at, sensor, value, unit"):
        list(ingest(warehouse, files(folder, WIDER)))
    land(folder, "0.csv", "sensor\n", 0)
    with pytest.raises(DataError, match="its header must name the columns"):
        list(ingest(warehouse, files(folder, replace(WIDER, name="others"))))


@pytest.mark.parametrize("where", mostly_nightly(["columns", "schema", "log", "timeline"]))
def test_a_kill_while_columns_are_added_loses_nothing(
    engine: Settings, warehouse: Warehouse, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "in"
    land_some(folder, 2)
    list(ingest(warehouse, connector(folder)))
    before = log_rows(warehouse)
    land(folder, "9.csv", f"{HEADER.strip()},unit\n{clock(600)},a,7,C\n", 600)
    assert dies(_DYING, engine, warehouse, where, str(folder), json.dumps(WIDER.columns))
    assert len(Log(warehouse, SOURCE).read_timeline()) == 2
    wide = "unit" in warehouse.read_schema(SOURCE.log_table).names
    assert wide == (where in ("log", "timeline"))
    if not wide:
        # Nothing has changed: the earlier definition also continues.
        Log(warehouse, SOURCE).ensure_tables()
    list(ingest(warehouse, files(folder, WIDER)))
    assert versions(warehouse) == [1, 1, 2]
    rows = log_rows(warehouse)
    assert [row[: len(before[0])] for row in rows[:-1]] == before
    assert {row[len(before[0]) :] for row in rows[:-1]} == {(None, None)}
    assert values(warehouse)[-1] == (7, "C", None)


def test_a_source_with_a_changed_type_stops_alone(warehouse: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    land_some(folder, 3)
    list(ingest(warehouse, connector(folder)))
    odd = replace(SOURCE, columns={**SOURCE.columns, "value": "STRING"})
    other = replace(SOURCE, name="others")
    land(folder, "9.csv", f"{HEADER}{clock(600)},a,7\n", 600)
    with pytest.raises(DefinitionError, match="the type of 'value'"):
        list(ingest(warehouse, files(folder, odd)))
    list(ingest(warehouse, files(folder, other)))
    # Ingested events are counted, even with the changed definition.
    incremental(warehouse, replace(COUNTED, source=odd))
    assert len(Log(warehouse, SOURCE).read_timeline()) == 3
    list(ingest(warehouse, connector(folder)))
    incremental(warehouse, COUNTED)
    assert check_parity(warehouse, COUNTED).is_equal
    mine, theirs = (log_rows(warehouse, each) for each in (SOURCE, other))
    assert [row[:3] for row in mine] == [row[:3] for row in theirs]


def test_new_fields_of_kafka_records_are_ingested(warehouse: Warehouse, topics: Topics) -> None:
    name = topics.create()
    topics.send(name, clicks(1))
    list(ingest(warehouse, topics.connector(name)))
    wider = replace(CLICKS, columns={**CLICKS.columns, "page": "STRING"})
    more = clicks(3)[0].replace(b"}", b', "page": "/x"}')
    topics.send(name, [*clicks(2), more])
    list(ingest(warehouse, topics.connector(name, source=wider)))
    rows = warehouse.load_rows(CLICKS.log_table, columns=["n", "page"]).sort_by("n").to_pylist()
    assert rows == [{"n": 1, "page": None}, {"n": 2, "page": None}, {"n": 3, "page": "/x"}]
    assert versions(warehouse, CLICKS) == [1, 2]
    with pytest.raises(DefinitionError, match="the column 'page', which is no longer declared"):
        list(ingest(warehouse, topics.connector(name)))
