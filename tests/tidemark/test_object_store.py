"""Tables in an object store, against a server of the S3 protocol: commits are taken once, none is
lost among many, and what needs no engine reads them there."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pyarrow as pa
import pytest
import requests
from pyspark.sql import SparkSession

from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.committers import Direct, Merge, atomic
from tidemark_streaming.glance import Glance

# Starts a server of the S3 protocol, and many writers.
pytestmark = pytest.mark.slow

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a bucket, which this process's environment says how to reach."""
    port = free_port()
    server = Path(sys.executable).with_name("moto_server")
    running = subprocess.Popen(
        [server, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address, deadline = f"http://127.0.0.1:{port}", monotonic() + 60
    while True:
        try:
            assert requests.put(f"{address}/tables", timeout=5).ok
            break
        except (requests.ConnectionError, requests.Timeout):
            assert running.poll() is None
            assert monotonic() < deadline
            sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", uuid4().hex)
        yield "s3a://tables"
    running.terminate()
    running.wait(60)


@pytest.fixture
def place(bucket: str) -> str:
    """The address of an empty database."""
    return f"{bucket}/{uuid4().hex}/tidemark"


def committer(spark: SparkSession, place: str) -> Direct:
    made = Direct(spark, place)
    made.create("numbers", ROWS.schema, "Numbers", {"delta.enableChangeDataFeed": "true"})
    return made


def test_a_store_that_creates_a_file_atomically_is_committed_to_directly(place: str) -> None:
    assert atomic(place)


def test_a_version_of_an_application_is_taken_once(spark: SparkSession, place: str) -> None:
    numbers = committer(spark, place)
    assert numbers.append("numbers", ROWS, "run", 0) == 2
    assert committer(spark, place).append("numbers", ROWS, "run", 0) is None
    merge = Merge(on=["n"], update=None)
    more = pa.table({"n": pa.array([2, 3], pa.int64())})
    numbers.merge("numbers", more, merge, "run", 1)
    head, rows = numbers.whole("numbers")
    assert (head.version, sorted(rows["n"].to_pylist())) == (2, [1, 2, 3])


def test_of_many_writers_no_commit_is_lost_or_doubled(spark: SparkSession, place: str) -> None:
    committer(spark, place)

    def write(writer: int) -> list[int | None]:
        own = Direct(spark, place)
        return [own.append("numbers", ROWS, f"run {n}", 0) for n in range(8)]

    with ThreadPoolExecutor(3) as pool:
        found = [taken for each in pool.map(write, range(3)) for taken in each]
    head, rows = Direct(spark, place).whole("numbers")
    # Each of eight versions was written by one of the three, and passed over by the others.
    assert sorted(found, key=bool) == [None] * 16 + [2] * 8
    assert (head.version, rows.num_rows) == (8, 16)


def test_what_needs_no_engine_reads_tables_there(spark: SparkSession, place: str) -> None:
    committer(spark, place).append("numbers", ROWS, "run", 0)
    settings = Settings(warehouse=place.rpartition("/")[0], database="tidemark")
    found = Glance(settings).read("numbers", ["n"])
    assert found is not None
    assert found["n"].to_pylist() == [1, 2]
    assert Glance(settings).read("none", ["n"]) is None
