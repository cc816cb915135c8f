"""Tests that task results are never spilled to disk, even if the engine is short of memory.

The search for them runs during the request, because Spark deletes them at its end.
"""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from conftest import SHORT_LIVED
from helpers.suite.nightly import mostly_nightly
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.launch import command as launch
from tidemark.engine.ports import free_port

# Starts its own engine, twice.
pytestmark = pytest.mark.slow

MARK = "rawvalue"
ROWS = 100_000
"""In eight tasks, each with more than the 1 MB that Spark returns directly by default."""


class Watch(threading.Thread):
    """Thread that reads every task result file below a folder while it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.seen, self.plain = set[str](), set[str]()
        self.ended = threading.Event()
        self._folder = folder

    def run(self) -> None:
        while not self.ended.is_set():
            # Spark deletes the files, and when it stops the folders, too, also during the search.
            with suppress(FileNotFoundError):
                for file in self._folder.glob("blockmgr-*/*/taskresult_*"):
                    content = file.read_bytes()
                    if content:
                        self.seen.add(file.name)
                    if MARK.encode() in content:
                        self.plain.add(file.name)


@pytest.mark.parametrize("aside", mostly_nightly([False, True]))
def test_task_results_are_not_spilled_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, aside: bool
) -> None:
    if aside:
        # With Spark's default, the search must find files.
        monkeypatch.setitem(launch._CLOSED, "spark.task.maxDirectResultSize", "1m")
    settings = Settings(
        home=tmp_path / "home",
        engine_port=free_port(),
        engine_memory="700m",
        engine_java_options=SHORT_LIVED,
        engine_conf={"spark.memory.fraction": "0.03"},
    )
    watch = Watch(settings.home / "scratch")
    try:
        spark_engine.ensure_engine(settings)
        spark = spark_engine.connect_session(settings)
        value = F.concat(F.lit(MARK), F.sha2(F.col("id").cast("string"), 512))
        rows = spark.range(0, ROWS, 1, 8).select(value.alias("value"))
        watch.start()
        for _ in range(3):
            assert rows.toArrow().num_rows == ROWS
        spark.stop()
    finally:
        watch.ended.set()
        spark_engine.stop_engine(settings)
    assert bool(watch.plain) is aside
