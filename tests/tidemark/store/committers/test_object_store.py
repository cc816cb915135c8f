"""Tests of tables in an object store, with a local S3 server.

Commits happen once, concurrent writers lose none, and readers without an engine find the tables.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helpers.processes.store_proxy import serve_proxy
from tidemark.base.errors import StoreError
from tidemark.base.settings import Settings
from tidemark.store.committers import conditional
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.values import Merge
from tidemark_streaming.snapshot.snapshot import Snapshot

# Starts an S3 server and many writers.
pytestmark = pytest.mark.slow

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@pytest.fixture
def place(bucket: str) -> str:
    """Return the address of an empty database."""
    return f"{bucket}/{uuid4().hex}/tidemark"


def committer(spark: SparkSession, place: str) -> Committer:
    made = Committer(spark, place)
    made.create_table("numbers", ROWS.schema, "Numbers", {"delta.enableChangeDataFeed": "true"})
    return made


def test_an_application_version_is_committed_once(spark: SparkSession, place: str) -> None:
    numbers = committer(spark, place)
    assert numbers.append_rows(ROWS, "numbers", "run", 0) == 2
    assert committer(spark, place).append_rows(ROWS, "numbers", "run", 0) is None
    merge = Merge(on=["n"], update=None)
    more = pa.table({"n": pa.array([2, 3], pa.int64())})
    numbers.merge_rows(more, "numbers", merge, "run", 1)
    head, rows = numbers.load_snapshot("numbers")
    assert (head.version, sorted(rows["n"].to_pylist())) == (2, [1, 2, 3])


def test_concurrent_writers_lose_and_double_no_commit(spark: SparkSession, place: str) -> None:
    committer(spark, place)

    def write(writer: int) -> list[int | None]:
        own = Committer(spark, place)
        return [own.append_rows(ROWS, "numbers", f"run {n}", 0) for n in range(8)]

    with ThreadPoolExecutor(3) as pool:
        found = [taken for each in pool.map(write, range(3)) for taken in each]
    head, rows = Committer(spark, place).load_snapshot("numbers")
    # Each of eight versions was written by one of the three, and skipped by the others.
    assert sorted(found, key=bool) == [None] * 16 + [2] * 8
    assert (head.version, rows.num_rows) == (8, 16)


def test_tables_are_readable_without_an_engine(spark: SparkSession, place: str) -> None:
    committer(spark, place).append_rows(ROWS, "numbers", "run", 0)
    settings = Settings(warehouse=place.rpartition("/")[0], database="tidemark")
    found = Snapshot(settings).tables.read("numbers", ["n"])
    assert found is not None
    assert found["n"].to_pylist() == [1, 2]
    assert Snapshot(settings).tables.read("none", ["n"]) is None


@pytest.fixture
def careless(bucket: str) -> Iterator[str]:
    """Yield the address of a database in a store that ignores conditions."""
    with serve_proxy() as proxy:
        proxy.drops_conditions = True
        yield f"{bucket}/{uuid4().hex}/tidemark"


def made_in(place: str) -> Committer:
    direct = Committer(cast("SparkSession", None), place)
    direct.create_table("numbers", ROWS.schema, "Numbers", {})
    return direct


def test_a_store_that_overwrites_a_key_is_refused(
    careless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional, "ROUNDS", 3)
    with pytest.raises(StoreError, match=r"ignores the condition of a write \(If-None-Match\)"):
        made_in(careless)
    assert Committer(cast("SparkSession", None), careless).list_tables() == []


@pytest.mark.nightly
def test_a_verified_store_is_not_verified_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = made_in(place)
    tried = list[str]()
    monkeypatch.setattr(conditional, "prove_conditional_writes", tried.append)
    direct.create_table("more", ROWS.schema, "More numbers", {})
    assert (tried, direct.list_tables()) == ([], ["more", "numbers"])


@pytest.mark.nightly
def test_a_client_with_conditional_writes_disabled_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(StoreError, match=r"AWS_CONDITIONAL_PUT=disabled turns off .* Unset it"):
        made_in(place)


def test_a_failing_store_gives_one_message_and_its_own_exit_code(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", f"{bucket}-elsewhere/{uuid4().hex}")
    # A separate process, as a user starts it.
    command = [Path(sys.executable).with_name("tidemark"), "fsck"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (told.returncode, told.stdout) == (3, "")
    assert "error: The object store has no such bucket: " in told.stderr
    assert "Traceback" not in told.stderr
