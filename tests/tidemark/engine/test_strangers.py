"""Tests that other users of the machine get no data from the engine's ports or spilled rows."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psutil
import pyarrow as pa
import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helpers.processes.strangers import as_stranger, needs_a_stranger
from tidemark.base.errors import DefinitionError, EngineError
from tidemark.base.settings import Settings
from tidemark.engine.launch import file_server
from tidemark.engine.launch.command import pyspark_home
from tidemark.engine.queries import requests
from tidemark.engine.server import managed_of

INTRUDER = (Path(__file__).parents[2] / "helpers/processes/intruder.py").read_text()
BLOCKS = [f"broadcast_{n}_piece0" for n in range(40)]


def listening(settings: Settings) -> dict[int, str]:
    """Return the ports on which the engine and its workers listen, each with its address."""
    record = managed_of(settings).find_running()
    assert record is not None
    engine = psutil.Process(record.pid)
    processes = (engine, *engine.children(recursive=True))
    known = [connection for process in processes for connection in process.net_connections()]
    return {c.laddr.port: c.laddr.ip for c in known if c.status == psutil.CONN_LISTEN}


@pytest.mark.slow  # Opens dozens of connections to each port, some of which are never accepted.
@needs_a_stranger
def test_no_engine_port_sends_data_to_another_user(engine: Settings, spark: SparkSession) -> None:
    few = spark.range(100).withColumn("value", F.lit(uuid4().hex))
    assert spark.range(1000).join(F.broadcast(few), "id").count() == 100
    echo = F.udf(lambda value: value)
    query = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda rows, _: None)
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(spark.range(3).select(echo("id")).collect()) == 3
    ports = listening(engine)
    # The driver, its blocks, the Connect server and the daemon of Python's workers, at least.
    assert len(ports) >= 4
    assert {address.removeprefix("::ffff:") for address in ports.values()} == {"127.0.0.1"}
    secret = str(engine.home / "token").lstrip("/")
    asked = (secret, "etc/passwd", *BLOCKS)
    with ThreadPoolExecutor(len(ports)) as pool:
        done = list(pool.map(lambda port: as_stranger(INTRUDER, port, *asked), ports))
    got = [json.loads(run.stdout or run.stderr) for run in done]
    assert [name for sizes in got for name, size in sizes.items() if size] == []
    # Spark leaves a port open that never answers for each Python worker of a stream.
    assert len([sizes for sizes in got if sizes.keys() == {*asked}]) >= 4


def test_spilled_rows_are_private_to_the_engines_user(
    engine: Settings, spark: SparkSession
) -> None:
    kept = spark.range(5000).repartition(3).persist(StorageLevel.DISK_ONLY)
    try:
        assert kept.count() == 5000
        scratch = engine.home / "scratch"
        aside = [file for file in scratch.glob("blockmgr-*/*/*") if file.stat().st_size]
        assert {file.name.partition("_")[0] for file in aside} >= {"rdd", "shuffle"}
        assert scratch.stat().st_mode & 0o077 == 0
    finally:
        kept.unpersist()


def test_many_rows_reach_the_engine(spark: SparkSession) -> None:
    """A session sends them as a file, which an engine that encrypts its blocks can't read."""
    rows = pa.table({"value": [f"{n:040}" for n in range(300_000)]})
    assert requests.to_dataframe(spark, rows).count() == 300_000


@pytest.mark.parametrize(
    "name",
    ["spark.authenticate", "spark.network.crypto.enabled", "spark.task.maxDirectResultSize"],
)
def test_security_settings_cannot_be_turned_off(name: str) -> None:
    with pytest.raises(DefinitionError, match="which Tidemark depends on"):
        Settings(engine_conf={name: "false"})


def test_an_unknown_spark_file_server_is_refused(tmp_path: Path) -> None:
    made = file_server.closed_jar(pyspark_home() / "jars", tmp_path)
    assert file_server.closed_jar(pyspark_home() / "jars", tmp_path) == made
    made.rename(tmp_path / "spark-core_2.13-9.jar")
    with pytest.raises(EngineError, match="install the version of pyspark"):
        file_server.closed_jar(tmp_path, tmp_path)
