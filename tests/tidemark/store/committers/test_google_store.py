"""Tests of `gs://`, with the clients of Google's store and a proxy that translates its protocol.

The proxy is not Google's store: the tests show what the clients send, and how replies are used.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from helpers.processes.store_proxy import StoreProxy, serve_google
from tidemark.base.errors import StoreError
from tidemark.base.settings import Settings
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.object_files import ObjectFolder
from tidemark.store.committers.values import Merge
from tidemark.store.published import read
from tidemark.store.refusals import translate_refusals
from tidemark.store.workers.record_store import WorkerRecords
from tidemark_streaming.files.bucket_folder import BucketFolder

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
WRITERS = 4
ROUNDS = 4


@pytest.fixture
def proxy(bucket: str, tmp_path: Path) -> Iterator[StoreProxy]:
    with serve_google(tmp_path) as proxy:
        yield proxy


@pytest.fixture
def place(proxy: StoreProxy) -> str:
    """Return the address of a database."""
    return f"gs://tables/{uuid4().hex}/tidemark"


def open_database(place: str) -> Committer:
    return Committer(cast("SparkSession", None), place)


def test_concurrent_commits_are_made_once(place: str) -> None:
    open_database(place).create_table("numbers", ROWS.schema, "Numbers", {})

    def append(_: int) -> None:
        database = open_database(place)
        for number in range(ROUNDS):
            database.append_rows(ROWS, "numbers", f"run {number}", 0)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(WRITERS)))
    database = open_database(place)
    assert database.load_rows("numbers").num_rows == ROUNDS * ROWS.num_rows
    database.merge_rows(ROWS, "numbers", Merge(on=["n"], update=None), "merge", 0)
    warehouse, _, name = place.rpartition("/")
    table = read("numbers", settings=Settings(warehouse=warehouse, database=name))
    assert sorted(set(table.to_pyarrow_table()["n"].to_pylist())) == [1, 2]
    assert database.list_tables() == ["numbers"]


def test_a_file_is_replaced_only_if_it_has_not_changed(place: str) -> None:
    folder = ObjectFolder(place)
    created = folder.replace_file("a", b"1", None)
    assert created is not None
    assert folder.replace_file("a", b"2", None) is None
    replaced = folder.replace_file("a", b"2", created)
    assert replaced is not None
    assert folder.replace_file("a", b"3", created) is None
    assert folder.read_tagged("a") == (b"2", replaced)


def test_no_change_of_a_record_is_lost(place: str) -> None:
    def count(_: int) -> None:
        records = WorkerRecords(place, "shop")
        for _ in range(ROUNDS):
            records.change_record(
                "ingest", "orders", lambda r: replace(r, report={"count": r.revision + 1})
            )

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(count, range(WRITERS)))
    (record,) = WorkerRecords(place, "shop").list_records("ingest")
    assert record.report == {"count": WRITERS * ROUNDS}


def test_landed_objects_are_listed_and_read(place: str) -> None:
    system, folder = file_system(f"{place}/landing")
    with system.open_output_stream(f"{folder}/1.csv") as file:
        file.write(b"n\n1\n")
    (landed,) = BucketFolder(f"{place}/landing").list_files()
    with landed.open() as content:
        assert (landed.name, content.read()) == ("1.csv", b"n\n1\n")


def test_a_refusal_is_one_message(proxy: StoreProxy, place: str) -> None:
    proxy.refused_keys.add("unsigned")
    for access in accesses(place):
        with pytest.raises(StoreError) as raised, translate_refusals("read"):
            access()
        message = str(raised.value)
        assert message.startswith("The object store does not know the access key: GET http://127")
        assert "AWS_" not in message


@pytest.mark.parametrize(
    ("address", "variable", "others"),
    [
        ("gs://tables/one", "GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS", "AWS_"),
        ("s3://tables/one", "AWS_PROFILE or AWS_ACCESS_KEY_ID", "GOOGLE_"),
    ],
)
def test_missing_credentials_are_named(
    address: str, variable: str, others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # The clients ask this machine for the credentials of its role.
    for name in ("AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    for access in accesses(address):
        with pytest.raises(StoreError) as raised, translate_refusals("read"):
            access()
        assert f"The object store needs credentials: set {variable}" in str(raised.value)
        assert others not in str(raised.value)
        assert raised.value.exit_code == 3


def accesses(place: str) -> list[Callable[[], object]]:
    """Return one access of each client."""
    system, folder = file_system(place)
    return [
        lambda: open_database(place).find_head("numbers"),
        lambda: read("numbers", settings=Settings(warehouse=place)),
        lambda: system.get_file_info(pafs.FileSelector(folder)),
    ]
