"""Columns may have any name, including those that Tidemark uses for its own columns."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.internal_names import internal_names
from helpers.suite.nightly import mostly_nightly
from tidemark.base import thresholds
from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define import helper_columns
from tidemark.define.definition import COMPLETE
from tidemark.define.helper_columns import PREFIX
from tidemark.define.source import NAME, Source
from tidemark.define.tables import Role
from tidemark.define.tidemark_columns import (
    ARRIVAL_COLUMNS,
    EVENT_TABLES,
    LATE_COLUMNS,
    WINDOW_TABLES,
    find_table,
)
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Count, Every, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.expect import one_of
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.connector import Connector
from tidemark_streaming.delta import CHANGE, DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest

ALL = internal_names()
TAKEN = {column for columns in EVENT_TABLES.values() for column in columns}
T0 = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 7


def source(names: Sequence[str]) -> Source:
    """Return a source with these columns. Reserved names are renamed."""
    rename = {name: f"own_{name}" for name in names if name in TAKEN}
    return Source(
        name="named",
        columns={"ts": "TIMESTAMP", **{rename.get(n, n): "STRING" for n in names}},
        event_time="ts",
        watermark=BoundedOutOfOrderness("1 minute"),
        rename=rename,
    )


def written(names: Sequence[str]) -> list[dict[str, str]]:
    """Return rows in which every value contains its row and its column."""
    return [
        {"ts": (T0 + timedelta(minutes=n)).isoformat(), **{c: f"{c} {n}" for c in names}}
        for n in range(ROWS)
    ]


def connector(form: str, folder: Path, names: Sequence[str]) -> Connector:
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


@pytest.mark.parametrize("few", mostly_nightly([True, False]))
@pytest.mark.parametrize(
    ("form", "step"), mostly_nightly([("csv", 5), ("delta", 1), ("json", 5), ("parquet", 1)], 2)
)
def test_source_columns_may_have_internal_names(
    warehouse: Warehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    step: int,
    few: bool,
) -> None:
    """Covers only some columns of text formats, because parsing them takes long."""
    if not few:
        monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    beside = CHANGE if form == "delta" else {}
    names = [name for name in ALL if name != "ts" and name not in beside]
    names = sorted({*names[::step], "block", "row", "file", "chunk", "dead_letter", "bytes"})
    came = connector(form, tmp_path / "landed", names)
    list(ingest(warehouse, came))
    rows = warehouse.load_rows("named_log").sort_by("position").to_pylist()
    assert warehouse.load_rows("named_dead_letters").num_rows == 0
    for number, row in enumerate(rows):
        assert {n: row[f"own_{n}" if n in TAKEN else n] for n in names} == {
            n: f"{n} {number}" for n in names
        }
    assert len(rows) == ROWS


WINDOWS: dict[str, tuple[Window, Trigger, bool]] = {
    "in memory": (Tumbling("2 minutes"), Trigger(), False),
    "tumbling": (Tumbling("2 minutes"), Trigger(early=Count(1), late=Count(1)), True),
    "sliding": (Sliding("4 minutes", "2 minutes"), Trigger(early=Every("1 minute")), True),
    "sessions": (Session("1 minute"), Trigger(early=Count(2)), False),
    "plain sessions": (Session("1 minute"), Trigger(), False),
}
HELPERS = sorted(
    {str(value).removeprefix(PREFIX) for value in vars(helper_columns).values()} & {*ALL}
)
"""Names that helper columns have without their prefix. They are in each of the runs."""
MINUTES = (*range(ROWS), 3, 0, 6, 30)
"""Minutes of the events. After the first `ROWS`, one is late, one too late, one a duplicate."""
TEXTS = (*map(str, range(ROWS)), "late", "too late", "6", "last")
"""The texts by which events are recognized as duplicates, and joined."""


def asset_of(names: Sequence[str], columns: dict[str, str], kind: str) -> WindowedTransform:
    """Return an asset with a quarter of these columns as keys, and aggregates of the others.

    Args:
        columns: the names in the asset by those in the source.
    """
    window, trigger, unique = WINDOWS[kind]
    keys = names[[*WINDOWS].index(kind) % 4 :: 4]
    values = [name for name in names if name not in keys]

    def prepare(rows: DataFrame, places: DataFrame) -> DataFrame:
        joined = rows.join(places, "text", "left").drop("slot_of_place")
        return joined.withColumnsRenamed({n: c for n, c in columns.items() if n != c})

    return WindowedTransform(
        name="by_plain_names" if any(n != c for n, c in columns.items()) else "by_names",
        description="Aggregates of columns that have internal names.",
        source=replace(source([*names, "text"]), lookups=("places",)),
        keys=tuple(columns[name] for name in keys),
        window=window,
        allowed_lateness=120_000_000,
        aggregates={columns[name]: agg.max(f"`{columns[name]}`") for name in values},
        function=prepare,
        trigger=trigger,
        accumulation="retracting",
        deduplicate=Deduplicate("text", within="1 hour") if unique else None,
        expectations=(one_of(columns[values[0]], [f"{values[0]} {n}" for n in range(5)]),),
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_nightly(WINDOWS, 2))
def test_keys_and_aggregates_may_have_internal_names(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    """The tables equal those of an asset with ordinary names."""
    free = [n for n in ALL if NAME.fullmatch(n) and not find_table(n, WINDOW_TABLES, EVENT_TABLES)]
    others = [n for n in free if n not in (*HELPERS, "text", "ts", "slot_of_place")]
    names = [*HELPERS, *others[[*WINDOWS].index(kind) :: len(WINDOWS)]]
    by_own = asset_of(names, {name: name for name in names}, kind)
    plain = {name: f"plain_{number}" for number, name in enumerate(names)}
    by_plain = asset_of(names, plain, kind)
    spark = warehouse.spark
    places = spark.createDataFrame([("0", "a"), ("1", "b")], "text STRING, slot_of_place STRING")
    places.write.format("delta").save(warehouse.path_of("places"))
    came = FileConnector(by_own.source, tmp_path, format="parquet")
    events = [
        {"ts": T0 + timedelta(minutes=n), "text": text, **{c: f"{c} {n}" for c in names}}
        for n, text in zip(MINUTES, TEXTS, strict=True)
    ]
    for part in (events[:ROWS], events[ROWS:-1], events[-1:]):
        table = pa.Table.from_pylist(part)
        pq.write_table(table, tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
        list(ingest(warehouse, came))
        for asset in (by_own, by_plain):
            incremental(warehouse, asset)
    seen = set[str]()
    for own, other in zip(by_own.own_tables, by_plain.own_tables, strict=True):
        if own.role is Role.STATE or not warehouse.has_table(own):
            continue
        seen.add(own.role)
        back = {new: old for old, new in plain.items()}
        back |= {f"{new}{COMPLETE}": f"{old}{COMPLETE}" for new, old in back.items()}
        theirs = warehouse.load_rows(other)
        theirs = theirs.rename_columns([back.get(c, c) for c in theirs.column_names])
        assert sorted_rows(warehouse.load_rows(own)) == sorted_rows(theirs), own.role
    assert seen == {"published table", "panes table", "quarantine", "late table", "late-loss table"}
    assert check_parity(warehouse, by_own).is_equal


def sorted_rows(rows: pa.Table) -> list[str]:
    """Return rows as sorted texts, without the run and the names of failed expectations."""
    columns = sorted(
        c for c in rows.column_names if c not in ("quarantine_run", "failed_expectations")
    )
    return sorted(map(repr, rows.select(columns).to_pylist()))


def test_the_only_reserved_names_are_columns_of_the_tables() -> None:
    """The error has the table, the column that a name would replace, and an alternative name."""
    asset = asset_of(HELPERS, {name: name for name in HELPERS}, "sessions")
    for tables, change in (
        (WINDOW_TABLES, lambda name: {"aggregates": {name: agg.count()}}),
        ({**EVENT_TABLES, **WINDOW_TABLES}, lambda name: {"keys": (name,)}),
    ):
        for table, columns in tables.items():
            for column in columns:
                if find_table(column, WINDOW_TABLES, EVENT_TABLES) == table:
                    with pytest.raises(
                        DefinitionError, match=f"adds a .*'{column}' to the {table}.*own_{column}"
                    ):
                        replace(asset, **change(column))


def test_the_documentation_lists_the_reserved_names() -> None:
    page = (Path(__file__).parents[3] / "docs/record_formats.md").read_text()
    rows = [line.split(" | ") for line in page.partition("### Reserved names")[2].splitlines()]
    told = {row[0].removeprefix("| "): re.findall("`([a-z_]+)`", row[1]) for row in rows if row[1:]}
    for table, columns in {**EVENT_TABLES, **WINDOW_TABLES}.items():
        assert [c for c in told[table] if c not in ("x", "x_complete")] == [*columns], table


def _adding(name: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn(name, F.lit(1))


def test_a_function_must_not_add_reserved_or_duplicate_columns(spark: SparkSession) -> None:
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
        asset.prepare_rows(rows)
    for name in LATE_COLUMNS:
        with pytest.raises(DefinitionError, match=f"has a column '{name}', which is reserved"):
            replace(asset, function=_adding(name)).prepare_rows(rows)
    twice = [F.lit(1).alias("id"), F.lit(2).alias("ID")]
    with pytest.raises(DefinitionError, match="has the column 'id' twice \\(the engine ignores"):
        replace(asset, function=lambda rows: rows.select("*", *twice)).prepare_rows(rows)
