"""Tests of the number of requests to an object store, and of the copies of transaction logs.

A real store answers a request in about 30 ms, which a store on this machine hides.
"""

import subprocess
import sys
from collections.abc import Iterator
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import SparkSession

from helpers.processes.store_proxy import StoreProxy, serve_proxy, summarize_requests
from tidemark.engine.launch import cache
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.log_copy import LogCopy
from tidemark.store.committers.open_tables import OpenTables

COMMITS = 12
"""The number of commits to a table, so that one of them writes a checkpoint."""


@pytest.fixture
def proxy(bucket: str) -> Iterator[StoreProxy]:
    """Yield the proxy through which the requests of a test pass."""
    with serve_proxy() as served:
        yield served


@pytest.fixture
def place(bucket: str) -> str:
    """Return the address of a database."""
    return f"{bucket}/{uuid4().hex}/tidemark"


def open_database(place: str) -> Committer:
    return Committer(cast("SparkSession", None), place)


def create_table(database: Committer, name: str) -> None:
    database.create_table(name, row(0).schema, "Numbers", {})


def drop_table(place: str, name: str) -> None:
    system, folder = file_system(f"{place}/{name}")
    system.delete_dir(folder)


def row(n: int) -> pa.Table:
    return pa.table({"n": pa.array([n], pa.int64())})


def create_numbers(place: str, commits: int = 0) -> Committer:
    """Create the table `numbers`, with the given number of appended rows."""
    database = open_database(place)
    create_table(database, "numbers")
    for n in range(commits):
        database.append_rows(row(n), "numbers", "app", n)
    return database


def rows(database: Committer) -> list[int]:
    return sorted(database.load_rows("numbers")["n"].to_pylist())


def test_an_append_takes_few_requests_however_long_the_log_is(
    proxy: StoreProxy, place: str
) -> None:
    database = create_numbers(place, commits=1)
    for n in range(1, COMMITS):
        with proxy.count() as counted:
            database.append_rows(row(n), "numbers", "app", n)
        assert len(counted) <= 8, summarize_requests(counted)
    assert rows(open_database(place)) == [*range(COMMITS)]


def test_an_access_to_an_unchanged_table_is_one_request(proxy: StoreProxy, place: str) -> None:
    database = create_numbers(place, COMMITS)
    for access in (
        lambda: database.find_head("numbers"),
        lambda: database.transaction_version("numbers", "app"),
        lambda: database.read_schema("numbers"),
        lambda: database.max_value("numbers", "n"),
        lambda: database.load_rows("numbers"),
    ):
        with proxy.count() as counted:
            access()
        assert [request.kind for request in counted] == ["LIST"]


def test_a_new_table_is_two_requests_however_many_tables_there_are(
    proxy: StoreProxy, place: str
) -> None:
    database = create_numbers(place)
    for name in ("a", "b", "c"):
        with proxy.count() as counted:
            create_table(database, name)
        assert len(counted) <= 2, summarize_requests(counted)


def test_an_instant_looks_at_each_table_once_and_lists_absent_ones_together(
    proxy: StoreProxy, place: str
) -> None:
    database = create_numbers(place, commits=2)
    tables = OpenTables(place)
    with proxy.count() as counted, tables.pin_all_versions():
        for _ in range(2):
            assert tables.open_newest("numbers").version() == 2
            for absent in ("a", "b", "c"):
                with pytest.raises(TableNotFoundError):
                    tables.open_newest(absent)
        database.append_rows(row(2), "numbers", "app", 2)
        assert tables.open_newest("numbers").version() == 2
    kinds = [request.kind for request in counted if "numbers" not in request.key]
    assert kinds == ["LIST"], summarize_requests(counted)
    assert tables.open_newest("numbers").version() == 3
    # The next instant sees tables that did not exist, and those that do not exist any more.
    create_table(database, "a")
    drop_table(place, "numbers")
    with tables.pin_all_versions():
        assert tables.open_newest("a").version() == 0
        for _ in range(2):
            with pytest.raises(TableNotFoundError):
                tables.open_newest("numbers")


def test_a_verified_copy_is_one_request(proxy: StoreProxy, place: str) -> None:
    create_numbers(place, commits=3)
    # Another process copies the log from the store.
    copied = LogCopy(f"{place}/numbers")
    copied.open_newest(None)
    with proxy.count() as counted:
        assert copied.open_newest(None, verify=True).version() == 3
    assert [request.kind for request in counted] == ["LIST"]


@pytest.mark.parametrize("version", [0, 1])
def test_an_entry_that_was_lost_since_the_copy_is_noticed(
    proxy: StoreProxy, place: str, version: int
) -> None:
    create_numbers(place, commits=3)
    lose_entry(place, version)
    assert OpenTables(place).open_newest("numbers").version() == 3
    with pytest.raises(DeltaError):
        OpenTables(place, verifies=True).open_newest("numbers")


def test_a_newest_entry_that_was_lost_since_the_copy_is_noticed(
    proxy: StoreProxy, place: str
) -> None:
    create_numbers(place, commits=3)
    lose_entry(place, 3)
    assert OpenTables(place, verifies=True).open_newest("numbers").version() == 2


def lose_entry(place: str, version: int) -> None:
    system, folder = file_system(f"{place}/numbers/_delta_log")
    system.delete_file(f"{folder}/{version:020}.json")


def test_a_repeated_append_is_one_request(proxy: StoreProxy, place: str) -> None:
    database = create_numbers(place, commits=3)
    with proxy.count() as counted:
        assert database.append_rows(row(9), "numbers", "app", 2) is None
    assert len(counted) <= 2, summarize_requests(counted)


def test_a_commit_of_another_writer_is_read_once(proxy: StoreProxy, place: str) -> None:
    reader = create_numbers(place, commits=3)
    url = f"{place}/numbers".replace("s3a://", "s3://")
    # This writer does not use the copy, like a process on another machine.
    write_deltalake(url, row(3), mode="append")
    with proxy.count() as counted:
        assert reader.find_head("numbers")
    assert [request.kind for request in counted] == ["LIST", "GET"]
    assert rows(reader) == [0, 1, 2, 3]


def test_a_recreated_table_with_as_many_commits_is_not_confused_with_the_old_one(
    proxy: StoreProxy, place: str
) -> None:
    reader = create_numbers(place, commits=3)
    before = reader.find_head("numbers")
    drop_table(place, "numbers")
    assert reader.find_head("numbers") is None
    other = create_numbers(place)
    for n in (7, 8, 9):
        other.append_rows(row(n), "numbers", "app", n)
    after = reader.find_head("numbers")
    assert before is not None
    assert after is not None
    assert (before.version, after.version) == (3, 3)
    assert before.table_id != after.table_id
    assert rows(reader) == [7, 8, 9]


def test_a_log_is_copied_from_its_newest_checkpoint_on(proxy: StoreProxy, place: str) -> None:
    create_numbers(place, COMMITS)
    url = f"{place}/numbers"
    # Other tests share their copy with the writer.
    copied = LogCopy(url)
    with proxy.count() as counted:
        assert copied.open_newest(None).version() == COMMITS
    _, *copies = [request.key.rpartition("/")[2] for request in counted]
    (checkpoint,) = [name for name in copies if name.endswith(".checkpoint.parquet")]
    first = int(checkpoint.partition(".")[0])
    assert sorted(copies) == [checkpoint, *(f"{n:020}.json" for n in range(first, COMMITS + 1))]
    assert copied.open_newest(None).transaction_version("app") == COMMITS - 1


def test_entries_that_maintenance_has_removed_are_not_missed(place: str, proxy: StoreProxy) -> None:
    reader = create_numbers(place, commits=3)
    other = open_database(place)
    other.append_rows(row(3), "numbers", "app", 3)
    other.trim_log("numbers")
    assert rows(reader) == [0, 1, 2, 3]
    reader.append_rows(row(4), "numbers", "app", 4)
    assert rows(other) == [0, 1, 2, 3, 4]


def test_a_commit_without_an_answer_is_made_once(place: str, proxy: StoreProxy) -> None:
    database = create_numbers(place, commits=1)
    proxy.lost_answers = 1
    database.append_rows(row(1), "numbers", "app", 1)
    assert proxy.lost_answers == 0
    assert rows(open_database(place)) == [0, 1]
    log = pafs.FileSelector(file_system(f"{place}/numbers/_delta_log")[1])
    assert len(file_system(place)[0].get_file_info(log)) == 3


KILLED = """
import os, signal, sys
from tidemark.store.committers.committer import Committer

Committer(None, sys.argv[1]).find_head("numbers")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_copies_of_a_killed_process_are_removed_by_the_next_one(place: str) -> None:
    create_numbers(place, commits=1)
    copies = cache.cache_folder("transaction_logs")
    killed = subprocess.Popen([sys.executable, "-c", KILLED, place])
    killed.wait(60)
    assert [*copies.glob(f"{killed.pid}-*")]
    other = KILLED.replace("SIGKILL", "SIGTERM")
    subprocess.run([sys.executable, "-c", other, place], check=False, timeout=60)
    assert not [*copies.glob(f"{killed.pid}-*")]


def test_a_version_has_another_identity_in_another_history(place: str) -> None:
    database = create_numbers(place, commits=3)
    identity = database.read_identity("numbers")
    assert database.read_identity("numbers") == database.find_identity("numbers") == identity
    system, folder = file_system(f"{place}/numbers")
    system.delete_dir(folder)
    create_numbers(place, commits=3)
    assert database.find_head("numbers") is not None
    assert database.read_identity("numbers") != identity
