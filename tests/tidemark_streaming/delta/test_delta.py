"""A Delta table as a source: each version is ingested once for any batch size, and lost versions
are reported."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from helpers.data.support import MINUTE, PER_MINUTE, T0
from tidemark.base import thresholds
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.engine.connect import engine_address
from tidemark.run.runner import incremental
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.delta import CHANGE, DeltaConnector, table_history
from tidemark_streaming.delta.versions import drop_unchanged
from tidemark_streaming.ingest.accepted_losses import skipped_losses
from tidemark_streaming.ingest.ingest import follow_source, ingest

INF = float("inf")
ORDERS = Source(
    name="orders",
    columns={"ts": "TIMESTAMP", "shop": "STRING", "price": "BIGINT"},
    event_time="ts",
    watermark=BoundedOutOfOrderness("1 minute"),
)
CHANGED = replace(ORDERS, columns={**ORDERS.columns, **CHANGE})
PER_SHOP = replace(
    PER_MINUTE,
    name="per_shop",
    source=ORDERS,
    keys=("shop",),
    aggregates={"n": agg.count(), "total": agg.sum("price")},
)


def orders(minutes: Sequence[int], shop: str = "a") -> pa.Table:
    """Return orders at these minutes, each with its minute as its price."""
    instants = pa.array([T0 + m * MINUTE for m in minutes], pa.timestamp("us", "UTC"))
    prices = pa.array(minutes, pa.int64())
    return pa.table({"ts": instants, "shop": [shop] * len(minutes), "price": prices})


def write(path: Path, rows: pa.Table, **more: Any) -> None:  # noqa: ANN401
    write_deltalake(path, rows, mode="append", **more)


def done(connector: DeltaConnector) -> list[Arrival]:
    """Return the pending arrivals as if they had been ingested."""
    return [
        Arrival(n, c.arrived_at, None, None, 0, None, None, c.bytes, c.position)
        for n, c in enumerate(connector.list_pending([]))
    ]


def versions(connector: DeltaConnector, timeline: Sequence[Arrival] = ()) -> list[int]:
    return [json.loads(chunk.position)["version"] for chunk in connector.list_pending(timeline)]


def log(warehouse: Warehouse, source: Source) -> list[dict[str, Any]]:
    """Return the event log without the correlation IDs."""
    rows = warehouse.load_rows(source.log_table).drop_columns(["correlation_id"])
    return sorted(rows.to_pylist(), key=lambda row: (row["arrival"], row["position"]))


def test_windows_are_equal_for_any_batch_size(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions that are ingested one at a time in memory, or all at once by the engine, give the
    same event log and windows. The table is partitioned, gains a column and is compacted."""
    chance, path = random.Random(11), tmp_path / "orders"
    piecemeal = DeltaConnector(ORDERS, str(path))
    for commit in range(6):
        minutes = [commit + chance.randint(-3, 1) for _ in range(8)]
        rows = pa.concat_tables([orders(minutes[:5], "a b"), orders(minutes[5:])])
        if commit > 3:
            rows = rows.append_column("note", pa.array(["new"] * 8))
        write(path, rows, partition_by=["shop"], schema_mode="merge")
        if commit == 4:
            DeltaTable(path).optimize.compact()
        if chance.random() < 0.6:
            list(ingest(warehouse, piecemeal))
    list(ingest(warehouse, piecemeal))
    whole = Warehouse(
        warehouse.spark, warehouse.location, f"{warehouse.database}_whole", registered=False
    )
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    assert len(list(ingest(whole, piecemeal, batch=None))) == 1
    assert log(whole, ORDERS) == log(warehouse, ORDERS)
    assert {row["arrival"] for row in log(whole, ORDERS)} == {0, 1, 2, 3, 4, 6}
    found = []
    for place in (warehouse, whole):
        incremental(place, PER_SHOP)
        rows = place.load_rows(PER_SHOP.published_table).to_pylist()
        found.append(sorted(tuple(map(str, row.values())) for row in rows))
    assert found[0] == found[1]
    assert found[0]


def test_row_changes_are_events(warehouse: Warehouse, tmp_path: Path) -> None:
    """Their signed sum equals the current table."""
    path = tmp_path / "orders"
    on = {"delta.enableChangeDataFeed": "true"}
    write(path, orders([0, 1, 2, 3]), configuration=on)
    write(path, orders([4, 5], "b"))
    connector = DeltaConnector(CHANGED, str(path), change_feed=True)
    list(ingest(warehouse, connector))
    table = DeltaTable(path)
    table.update(predicate="price = 2", updates={"price": "20"})
    table.delete("shop = 'b' AND price = 5")
    list(ingest(warehouse, connector))
    rows = log(warehouse, CHANGED)
    assert [
        (r["arrival"], r["_change_type"], r["_commit_version"], r["price"]) for r in rows[6:]
    ] == [
        (2, "update_preimage", 2, 2),
        (2, "update_postimage", 2, 20),
        (3, "delete", 3, 5),
    ]
    sign = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
    told = warehouse.read_frame(CHANGED.log_table).selectExpr(
        f"SUM({sign})", f"SUM(price * {sign})"
    )
    there = DeltaTable(path).to_pyarrow_table()["price"].to_pylist()
    assert told.collect() == [(len(there), sum(there))]


def rewrite(path: Path, more: pa.Table | None = None) -> None:
    """Commit the newest file again under another name, unchanged or with more rows, and record no
    changes: as Spark's MERGE does if no row meets its conditions."""
    version = DeltaTable(path).version()
    (old,) = added(path, version)
    rows = pq.read_table(old)
    new = path / f"rewritten-{version}.parquet"
    pq.write_table(rows if more is None else pa.concat_tables([rows, more.cast(rows.schema)]), new)
    plain = {"dataChange": True, "partitionValues": {}}
    remove = {"path": old.name, "size": old.stat().st_size, "deletionTimestamp": 0, **plain}
    add = {"path": new.name, "size": new.stat().st_size, "modificationTime": 0, **plain}
    actions = [{"commitInfo": {"operation": "MERGE"}}, {"remove": remove}, {"add": add}]
    file = path / f"_delta_log/{version + 1:020}.json"
    file.write_text("\n".join(map(json.dumps, actions)))


def read_in_memory(source: Source, path: Path, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return the rows of all versions, and drop a column so that the engine gets none of them."""
    masked = replace(source, mask={"dropped": Drop()})
    connector = DeltaConnector(masked, str(path), **more)
    rows: Any = connector.read(cast(SparkSession, None), connector.list_pending([]))
    return rows.to_pylist()


PARTITIONS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "STRING": (
        pa.string(),
        st.text(
            st.sampled_from("ab é😀/%:=+ #?&'\"\\[]{}*\n.")
            | st.characters(codec="utf-8", min_codepoint=1),
            min_size=1,
            max_size=8,
        ),
    ),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), st.datetimes()),
    "DATE": (pa.date32(), st.dates()),
    "BIGINT": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "DECIMAL(10,2)": (pa.decimal128(10, 2), st.decimals(0, 10**7, places=2)),
    "DOUBLE": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, 1e16, INF, -INF])),
}


@pytest.mark.parametrize("kind", PARTITIONS)
@given(st.data())
@settings(max_examples=6, deadline=None)
def test_partition_values_of_any_type_are_read(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """delta-rs 1393 and 2380, Delta 4268: special characters and times in partitions, as added
    rows, as the whole table, and as changes."""
    path, (arrow, values) = tmp_path_factory.mktemp("parts") / "{t}", PARTITIONS[kind]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=4))
    zero = pa.array([T0] * len(drawn), pa.timestamp("us", "UTC"))
    rows = pa.table({"ts": zero, "x": pa.array(drawn, arrow), "dropped": [1] * len(drawn)})
    folder = path.parent / "t"
    on = {"delta.enableChangeDataFeed": "true"}
    write(folder, rows, partition_by=["x"], configuration=on)
    write(folder, rows.slice(0, 1), partition_by=["x"])
    # delta-rs reads a path with braces.
    folder.rename(path)
    columns = {"ts": "TIMESTAMP", "x": kind, "dropped": "BIGINT"}
    source = Source("parts", columns, "ts", BoundedOutOfOrderness("1 minute"))
    for more in ({}, {"start": 1}, {"change_feed": True}):
        found = [row["x"] for row in read_in_memory(source, path, **more)]
        assert Counter(map(str, found)) == Counter(map(str, [*drawn, drawn[0]]))


def test_deletion_vectors_are_deletes_of_the_change_feed(tmp_path: Path) -> None:
    """The vector is the example of Delta's protocol: rows 3, 4, 7, 11, 18, and 29."""
    path = tmp_path / "orders"
    rows = orders(range(30)).append_column("dropped", pa.array([1] * 30))
    write(path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    (file,) = added(path, 0)
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    facts = {"path": file.name, "size": file.stat().st_size, "dataChange": True}
    facts |= {"partitionValues": {}, "stats": json.dumps({"numRecords": 30})}
    actions = [
        {"protocol": protocol | {"readerFeatures": features, "writerFeatures": features}},
        {"remove": facts | {"deletionTimestamp": 0}},
        {"add": facts | {"modificationTime": 0, "deletionVector": vector}},
    ]
    log = path / f"_delta_log/{1:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    source = replace(CHANGED, columns={**CHANGED.columns, "dropped": "BIGINT"})
    found = read_in_memory(source, path, change_feed=True)
    deleted = [3, 4, 7, 11, 18, 29]
    assert [(r["_change_type"], r["_commit_version"], r["price"]) for r in found] == [
        *(("insert", 0, n) for n in range(30)),
        *(("delete", 1, n) for n in deleted),
    ]


def test_files_outside_of_the_tables_folder_are_reported(tmp_path: Path) -> None:
    """delta-rs 865: a shallow clone has the URLs of another table's files; none was deleted."""
    path = tmp_path / "orders"
    write(path, orders([0]))
    log = path / f"_delta_log/{0:020}.json"
    (file,) = added(path, 0)
    log.write_text(log.read_text().replace(file.name, f"file://{file}"))
    with pytest.raises(DataError, match=r"files outside of its folder, like a shallow clone"):
        DeltaConnector(ORDERS, str(path)).list_pending([])


def test_unchanged_rows_of_rewritten_files_are_not_changes(tmp_path: Path) -> None:
    """Trino 19955, Delta 906: only rows that differ are events, regardless of rewritten files."""
    path = tmp_path / "orders"
    write(path, orders([0, 1, 1]), configuration={"delta.enableChangeDataFeed": "true"})
    rewrite(path)
    rewrite(path, orders([1, 2]))
    DeltaTable(path).delete("price = 0")
    connector = DeltaConnector(replace(CHANGED, mask={"shop": Drop()}), str(path), change_feed=True)
    chunks = connector.list_pending([])
    found = [connector.read(cast(SparkSession, None), [chunk]) for chunk in chunks]
    assert [
        [(row["_change_type"], row["price"]) for row in cast(pa.Table, rows).to_pylist()]
        for rows in found
    ] == [
        [("insert", 0), ("insert", 1), ("insert", 1)],
        [],
        [("insert", 1), ("insert", 2)],
        [("delete", 0)],
    ]


CELLS = {
    "number": st.sampled_from([None, 0, 1]),
    "double": st.sampled_from([None, 0.0, float("nan")]),
    "text": st.sampled_from([None, "", "None"]),
    "list": st.sampled_from([None, [], [None], [1]]),
}


@given(st.lists(st.tuples(st.booleans(), st.fixed_dictionaries(CELLS)), max_size=30))
@settings(max_examples=30, deadline=None)
def test_unchanged_rows_are_dropped_from_a_rewrite(
    changes: list[tuple[bool, dict[str, Any]]],
) -> None:
    kinds = pa.schema(
        {
            "number": pa.int64(),
            "double": pa.float64(),
            "text": pa.string(),
            "list": pa.list_(pa.int64()),
        }
    )
    rows = pa.Table.from_pylist([row for _, row in changes], kinds)
    told = pa.array(["insert" if new else "delete" for new, _ in changes], pa.string())
    left = drop_unchanged(rows.append_column("kind", told), "kind").to_pylist()
    found = {kind: Counter[str]() for kind in ("insert", "delete")}
    for row in left:
        found[row.pop("kind")][repr(sorted(row.items()))] += 1
    old, new = (
        Counter(repr(sorted(row.items())) for is_new, row in changes if is_new == kind)
        for kind in (False, True)
    )
    assert found == {"insert": new - old, "delete": old - new}


def test_ingestion_starts_with_the_table_at_the_start_version(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    write(path, orders([0]))
    write(path, orders([1]))
    DeltaTable(path).delete("price = 0")
    write(path, orders([2]))
    connector = DeltaConnector(ORDERS, str(path), start=2)
    list(ingest(warehouse, connector))
    assert [(r["arrival"], r["price"]) for r in log(warehouse, ORDERS)] == [(0, 1), (1, 2)]


def test_a_following_ingest_reads_each_new_version_once(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """An unsupported version stops it after the versions before."""
    path = tmp_path / "orders"
    write(path, orders([0]))
    commits, told = follow_source(warehouse, DeltaConnector(ORDERS, str(path)), 0.01), list[str]()
    for minute in (1, 2):
        told += [arrival.position for arrival in next(commits).arrivals]
        write(path, orders([minute]))
    DeltaTable(path).delete("price = 0")
    told += [arrival.position for arrival in next(commits).arrivals]
    with pytest.raises(DataError, match=r"Version 3 of .* updates or deletes rows"):
        next(commits)
    assert [json.loads(position)["version"] for position in told] == [0, 1, 2]
    assert [(r["arrival"], r["price"]) for r in log(warehouse, ORDERS)] == [(0, 0), (1, 1), (2, 2)]


KILLED = """
import json
import sys
from pathlib import Path
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest

_, file, remote, place = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
list(ingest(warehouse, cloudpickle.loads(Path(file).read_bytes()), batch=2))
"""


# Starts and kills processes.
@pytest.mark.slow
def test_after_a_kill_in_a_commit_each_version_is_ingested_once(
    engine: Settings, warehouse: Warehouse, tmp_path: Path
) -> None:
    path, file = tmp_path / "orders", tmp_path / "connector"
    for minute in range(3):
        write(path, orders([minute]))
    connector = DeltaConnector(ORDERS, str(path))
    file.write_bytes(cloudpickle.dumps(connector))
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            KILLED,
            str(file),
            engine_address(engine),
            json.dumps(warehouse.place),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TIDEMARK_FAIL_AT": "timeline"},
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    list(ingest(warehouse, connector))
    assert [(r["arrival"], r["price"]) for r in log(warehouse, ORDERS)] == [(0, 0), (1, 1), (2, 2)]


def test_a_version_that_changes_rows_stops_the_source(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    write(path, orders([0, 1]))
    write(path, orders([2]))
    DeltaTable(path).delete("price = 1")
    write(path, orders([3]))
    connector = DeltaConnector(ORDERS, str(path))
    assert versions(connector) == [0, 1]
    with pytest.raises(DataError, match=r"Version 2 of .*orders' updates or deletes rows, but"):
        connector.list_pending(done(connector))
    assert versions(replace(connector, skip_change_commits=True), done(connector)) == [2, 3]
    with pytest.raises(DataError, match=r"has no change data feed: enable it with ALTER TABLE"):
        replace(connector, change_feed=True).list_pending(done(connector))


def test_rows_of_a_skipped_version_are_not_ingested(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    write(path, orders([0, 1]))
    DeltaTable(path).update(predicate="price = 1", updates={"price": "10"})
    write(path, orders([2]))
    list(ingest(warehouse, DeltaConnector(ORDERS, str(path), skip_change_commits=True)))
    assert [(r["arrival"], r["price"]) for r in log(warehouse, ORDERS)] == [(0, 0), (0, 1), (2, 2)]


def added(path: Path, version: int) -> list[Path]:
    """Return the files that a version has added."""
    lines = (path / f"_delta_log/{version:020}.json").read_text().splitlines()
    adds = [told["add"]["path"] for line in lines if "add" in (told := json.loads(line))]
    return [path / each for each in adds]


def test_deleted_versions_are_reported_and_can_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    for minute in range(5):
        write(path, orders([minute]))
    connector = DeltaConnector(ORDERS, str(path))
    timeline = done(connector)[:1]
    # The result of VACUUM for two versions whose rows were compacted.
    table = DeltaTable(path)
    table.optimize.compact()
    for version in (1, 2):
        (file,) = added(path, version)
        file.unlink()
    sentence = (
        r"orders' no longer has versions 1 to 2: VACUUM .* --allow-data-loss\. .*`start` to 5 \(a "
        r"source that has arrivals also needs a new name\)\."
    )
    with pytest.raises(DataError, match=sentence):
        connector.list_pending(timeline)
    accepting = replace(connector, accept_loss=True)
    chunks = accepting.list_pending(timeline)
    assert [json.loads(c.position)["version"] for c in chunks] == [3, 4, 5]
    assert [skipped_losses(c.position) for c in chunks] == [["versions 1 to 2 (deleted)"], [], []]
    # A later loss was not accepted.
    (third,) = added(path, 3)
    third.rename(tmp_path / "gone")
    with pytest.raises(DataError, match=r"no longer has version 3"):
        accepting.list_pending(timeline)
    (tmp_path / "gone").rename(third)
    # The result of the transaction log's retention.
    table.create_checkpoint()
    for version in range(3):
        (path / f"_delta_log/{version:020}.json").unlink()
    with pytest.raises(DataError, match=r"no longer has versions 0 to 2"):
        connector.list_pending([])
    assert versions(replace(connector, start=5)) == [5]


def test_changes_deleted_by_vacuum_are_reported(tmp_path: Path) -> None:
    """Delta 1365: if files of the change data feed are deleted, the error has the versions, and
    none is skipped."""
    path = tmp_path / "orders"
    write(path, orders([0, 1]), configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(path)
    table.delete("price = 1")
    table.update(predicate="price = 0", updates={"price": "10"})
    write(path, orders([2]))
    connector = DeltaConnector(CHANGED, str(path), change_feed=True)
    timeline = done(connector)[:1]
    assert versions(connector, timeline) == [1, 2, 3]
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(DataError, match=r"orders' no longer has versions 1 to 2: .*`start` to 3 "):
        connector.list_pending(timeline)
    # VACUUM itself commits its start and its end.
    assert versions(replace(connector, accept_loss=True), timeline) == [3, 4, 5]


def test_a_recreated_table_is_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        write(path, orders([0]))
    timeline = done(DeltaConnector(ORDERS, str(first)))
    anew = DeltaConnector(ORDERS, str(second))
    with pytest.raises(DataError, match=r"recreated under its path after version 0\. .* --allow"):
        anew.list_pending(timeline)
    (chunk,) = replace(anew, accept_loss=True).list_pending(timeline)
    assert skipped_losses(chunk.position) == ["it was recreated under its path after version 0"]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_table_restored_from_a_copy_is_reported(tmp_path: Path, more: int) -> None:
    """Later commits may have the numbers of those that were read."""
    path, copy = tmp_path / "orders", tmp_path / "copy"
    write(path, orders([0]))
    shutil.copytree(path, copy)
    write(path, orders([1]))
    timeline = done(DeltaConnector(ORDERS, str(path)))
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    for minute in range(more):
        write(path, orders([10 + minute]))
    connector = DeltaConnector(ORDERS, str(path))
    if more == 1:
        # The versions have equal numbers: the next commit shows the difference.
        assert connector.list_pending(timeline) == []
        return
    with pytest.raises(DataError, match=r"read before: it was restored from a copy, so"):
        connector.list_pending(timeline)
    chunks = replace(connector, accept_loss=True).list_pending(timeline)
    assert [json.loads(chunk.position)["version"] for chunk in chunks] == [2] * (more // 2)


ANEW = r"orders' of source 'orders' was recreated under its path while it was read"


@pytest.mark.parametrize("few", [True, False])
def test_a_table_recreated_between_poll_and_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """Otherwise its rows would be ingested as those of the old table, and again as its own."""
    if not few:
        monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    path, nobody = tmp_path / "orders", cast(SparkSession, None)
    for minute in range(2):
        write(path, orders([minute]))
    connector = DeltaConnector(ORDERS, str(path))
    chunks = connector.list_pending([])
    path.rename(tmp_path / "old")
    # With fewer versions, with as many, and without a table.
    for minute in (5, 6):
        write(path, orders([minute]))
        with pytest.raises(DataError, match=ANEW):
            connector.read(nobody, chunks)
    shutil.rmtree(path)
    with pytest.raises(DataError, match="There is no Delta table at"):
        connector.read(nobody, chunks)


@pytest.mark.parametrize("few", [True, False])
def test_a_table_recreated_during_a_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    path, nobody = tmp_path / "orders", cast(SparkSession, None)
    for minute in range(3):
        write(path, orders([minute]))
    connector = DeltaConnector(ORDERS, str(path))
    chunks, look = connector.list_pending([]), table_history.read_commit
    if not few:
        monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)

    def replaced(*given: Any) -> Any:  # noqa: ANN401
        if (tmp_path / "new").exists():
            path.rename(tmp_path / "old")
            (tmp_path / "new").rename(path)
        return look(*given)

    monkeypatch.setattr(table_history, "read_commit", replaced)
    for count in (3, 1):
        for minute in range(count):
            write(tmp_path / "new", orders([minute + 5]))
        with pytest.raises(DataError, match=ANEW):
            connector.read(nobody, chunks)
        shutil.rmtree(path)
        (tmp_path / "old").rename(path)


def test_a_commit_has_the_timestamp_that_the_protocol_defines(tmp_path: Path) -> None:
    """The other contents of `commitInfo`, and `commitInfo` itself, are optional."""
    path = tmp_path / "orders"
    infos = [None, {"timestamp": 5}, {"timestamp": 5, "inCommitTimestamp": T0 // 1000 + 50}]
    for version, info in enumerate(infos):
        write(path, orders([version]))
        file = path / "_delta_log" / f"{version:020}.json"
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        actions = [action for action in actions if "commitInfo" not in action]
        actions += [] if info is None else [{"commitInfo": info}]
        file.write_text("\n".join(map(json.dumps, actions)))
        os.utime(file, ns=(0, (T0 + version) * 1000))
    chunks = DeltaConnector(ORDERS, str(path)).list_pending([])
    assert [chunk.arrived_at - T0 for chunk in chunks] == [0, 1, 50_000]


def test_a_catalog_managed_table_is_refused_with_one_message(tmp_path: Path) -> None:
    write(tmp_path, orders([0]))
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    told = [protocol if "protocol" in action else action for action in actions]
    file.write_text("\n".join(map(json.dumps, told)))
    with pytest.raises(
        DataError, match=r"^Delta table '.*' of .* can't be read: .*catalog"
    ) as error:
        DeltaConnector(ORDERS, str(tmp_path)).list_pending([])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("few", [True, False])
def test_timestamps_without_a_zone_use_the_declared_time_zone(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """Covers local times that occur twice or never because of daylight saving time."""
    hours = ["2026-01-01T00:00", "2026-03-29T01:59", "2026-03-29T02:30", "2026-10-25T02:30"]
    hours += ["1880-06-01T00:00:00.000001", "2026-07-01T12:00"]
    local = pa.array([datetime.fromisoformat(hour) for hour in hours], pa.timestamp("us"))
    rows = pa.table({"ts": local, "shop": ["a"] * len(hours), "price": range(len(hours))})
    write(tmp_path, rows)
    connector = DeltaConnector(ORDERS, str(tmp_path))
    with pytest.raises(DefinitionError, match=r"'ts' .* as timestamp_ntz, .* time_zone to 'UTC'"):
        connector.list_pending([])
    with pytest.raises(DefinitionError, match=r"unknown time zone, 'Mars'"):
        replace(connector, time_zone="Mars")
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 100 if few else 0)
    list(ingest(warehouse, replace(connector, time_zone="Europe/Berlin")))
    found = [row["ts"].astimezone(UTC).isoformat()[:-6] for row in log(warehouse, ORDERS)]
    assert found == [
        *("2025-12-31T23:00:00", "2026-03-29T00:59:00", "2026-03-29T01:30:00"),
        *("2026-10-25T00:30:00", "1880-05-31T23:06:32.000001", "2026-07-01T10:00:00"),
    ]


def test_invalid_tables_and_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    connector = DeltaConnector(ORDERS, str(path))
    with pytest.raises(DataError, match=r"There is no Delta table at '.*orders', from which so"):
        connector.list_pending([])
    write(path, orders([0]))
    with pytest.raises(DataError, match=r"version 4 yet: .* is 0\. Set `start` to 0 or less"):
        replace(connector, start=4).list_pending([])
    other = replace(ORDERS, columns={**ORDERS.columns, "note": "STRING"})
    with pytest.raises(DefinitionError, match=r"'note' as STRING, but .* has no such column; its"):
        replace(connector, source=other).list_pending([])
    other = replace(ORDERS, columns={**ORDERS.columns, "price": "DOUBLE"})
    with pytest.raises(DefinitionError, match=r"'price' as DOUBLE, but .* has it as bigint; its"):
        replace(connector, source=other).list_pending([])
    with pytest.raises(DefinitionError, match=r"`start` of 0 or greater \(got -1\)"):
        replace(connector, start=-1)
    with pytest.raises(DefinitionError, match=r"path '/lake/\[old\]', which contains \[ \]\. Move"):
        replace(connector, path="/lake/[old]")
    with pytest.raises(DefinitionError, match=r"can have change_feed or skip_change_commits"):
        replace(connector, change_feed=True, skip_change_commits=True)


def test_a_change_data_feed_enabled_later_is_reported(warehouse: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    write(path, orders([0]))
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    connector = DeltaConnector(CHANGED, str(path), change_feed=True)
    with pytest.raises(DataError, match=r"data feed for version 0, .*`start` to the version"):
        list(ingest(warehouse, connector))
    list(ingest(warehouse, replace(connector, start=1)))
    (row,) = log(warehouse, CHANGED)
    assert (row["_change_type"], row["_commit_version"]) == ("insert", 1)


def test_undeclared_columns_may_have_any_type(tmp_path: Path) -> None:
    write(tmp_path, orders([0]).append_column("other", pa.array(["x"])))
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    text = file.read_text().replace(
        r"{\"name\":\"other\",\"type\":\"string\"",
        r"{\"name\":\"other\",\"type\":\"interval day to second\"",
    )
    assert "interval" in text
    file.write_text(text)
    connector = DeltaConnector(replace(ORDERS, mask={"shop": Drop()}), str(tmp_path))
    rows: Any = connector.read(cast(SparkSession, None), connector.list_pending([]))
    assert isinstance(rows, pa.Table)
    assert rows.column("price").to_pylist() == [0]
    other = replace(ORDERS, columns={**ORDERS.columns, "other": "STRING"})
    with pytest.raises(
        DefinitionError, match=r"'other' as STRING, but .* has it as interval day to"
    ):
        replace(connector, source=other).list_pending([])
