"""Columns may have any name, also those that Tidemark's own code gives to columns."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from internal_names import internal_names
from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.definition import RESERVED
from tidemark.define.source import ARRIVAL_COLUMNS, NAME, RUN_COLUMNS, Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import Count, Every, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity
from tidemark_streaming import ingest as streaming_ingest
from tidemark_streaming.delta import CHANGE, DeltaConnector
from tidemark_streaming.delta import feed as delta_feed
from tidemark_streaming.feed import Feed
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest import ingest

REGISTERED = False
ALL = internal_names()
TAKEN = {*ARRIVAL_COLUMNS, *RUN_COLUMNS}
T0 = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 7


def source(names: Sequence[str]) -> Source:
    """A source that has these columns, those with a name that is taken under another."""
    rename = {name: f"own_{name}" for name in names if name in TAKEN}
    return Source(
        name="named",
        columns={"ts": "TIMESTAMP", **{rename.get(n, n): "STRING" for n in names}},
        event_time="ts",
        watermark=BoundedOutOfOrderness("1 minute"),
        rename=rename,
    )


def written(names: Sequence[str]) -> list[dict[str, str]]:
    """Rows of which every value names its row and its column."""
    return [
        {"ts": (T0 + timedelta(minutes=n)).isoformat(), **{c: f"{c} {n}" for c in names}}
        for n in range(ROWS)
    ]


def feed(form: str, folder: Path, names: Sequence[str]) -> Feed:
    folder.mkdir()
    rows, of = written(names), source(names)
    if form == "csv":
        with (folder / "a.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["ts", *names])
            writer.writeheader()
            writer.writerows(rows)
        return FileConnector(of, folder, options={"header": True})
    if form == "json":
        (folder / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return FileConnector(of, folder, format="json")
    table = pa.Table.from_pylist(rows)
    times = table["ts"].cast(pa.timestamp("us", "UTC"))
    table = table.set_column(0, "ts", times)
    if form == "parquet":
        pq.write_table(table, folder / "a.parquet")
        return FileConnector(of, folder, format="parquet")
    write_deltalake(folder, table)
    return DeltaConnector(of, str(folder))


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(("form", "step"), [("csv", 5), ("json", 5), ("parquet", 1), ("delta", 1)])
def test_columns_of_a_source_may_have_internal_names(
    warehouse: Warehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    step: int,
    few: bool,
) -> None:
    """Text is parsed column by column, which takes long: of its columns, some."""
    if not few:
        monkeypatch.setattr(delta_feed, "SMALL_BATCH_ROWS", 0)
        monkeypatch.setattr(streaming_ingest, "SMALL_BATCH_ROWS", 0)
    beside = CHANGE if form == "delta" else {}
    names = [name for name in ALL if name != "ts" and name not in beside]
    names = sorted({*names[::step], "block", "row", "file", "chunk", "dead_letter", "bytes"})
    came = feed(form, tmp_path / "landed", names)
    list(ingest(warehouse, came))
    rows = warehouse.take("named_log").sort_by("position").to_pylist()
    assert warehouse.take("named_dead_letters").num_rows == 0
    for number, row in enumerate(rows):
        assert {n: row[f"own_{n}" if n in TAKEN else n] for n in names} == {
            n: f"{n} {number}" for n in names
        }
    assert len(rows) == ROWS


WINDOWS: dict[str, tuple[Window, Trigger, bool]] = {
    "plain": (Tumbling("2 minutes"), Trigger(), False),
    "ranked": (Tumbling("2 minutes"), Trigger(early=Count(1), late=Count(1)), True),
    "clocked": (Sliding("4 minutes", "2 minutes"), Trigger(early=Every("1 minute")), True),
    "sessions": (Session("1 minute"), Trigger(early=Count(2)), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
def test_keys_and_aggregates_may_have_internal_names(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    """Those that are not refused when the asset is defined."""
    window, trigger, unique = WINDOWS[kind]
    names = [name for name in ALL if NAME.fullmatch(name) and name not in (*RESERVED, *TAKEN, "ts")]
    list(ingest(warehouse, feed("parquet", tmp_path / "landed", names)))
    # Each name in one of the kinds.
    first = 2 * list(WINDOWS).index(kind)
    keys, values = names[first::8], names[first + 1 :: 8]
    asset = WindowedTransform(
        name="by_names",
        description="Counts by columns that have internal names.",
        source=source(names),
        keys=tuple(keys),
        window=window,
        allowed_lateness=0,
        aggregates={name: agg.max(f"`{name}`") for name in values},
        function=lambda rows: rows,
        trigger=trigger,
        accumulation="accumulating",
        deduplicate=Deduplicate(keys[0], within="1 hour") if unique else None,
    )
    incremental(warehouse, asset)
    rows = warehouse.take("by_names").sort_by("window_start").to_pylist()
    assert rows
    for row in rows:
        (number,) = {row[name].rpartition(" ")[2] for name in (*keys, *values)}
        assert {name: row[name] for name in (*keys, *values)} == {
            name: f"{name} {number}" for name in (*keys, *values)
        }
    assert parity(warehouse, asset).equal


def test_a_function_may_not_make_helper_columns(spark: SparkSession) -> None:
    kinds = {"ts": "TIMESTAMP", **ARRIVAL_COLUMNS}
    rows = spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    asset = WindowedTransform(
        name="wrong",
        description="",
        source=source([]),
        keys=(),
        window=Tumbling("1 minute"),
        allowed_lateness=0,
        aggregates={"n": agg.count()},
        function=lambda rows: rows.withColumn("_tidemark_rank", F.lit(1)),
    )
    with pytest.raises(DefinitionError, match="'_tidemark_rank', which begins with '_tidemark_'"):
        asset.prepare(rows)
    twice = [F.lit(1).alias("id"), F.lit(2).alias("ID")]
    with pytest.raises(DefinitionError, match="has the column 'id' twice \\(the engine ignores"):
        replace(asset, function=lambda rows: rows.select("*", *twice)).prepare(rows)
