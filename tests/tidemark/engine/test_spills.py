"""Results of tasks while the engine's memory is short: none is put aside on the disk.

They are looked for while they would be there, as they go with the request.
"""

import threading
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from conftest import SHORT_LIVED
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.launch import command as launch
from tidemark.engine.ports import free_port

# Starts an engine of its own, twice.
pytestmark = pytest.mark.slow

MARK = "rawvalue"
ROWS = 100_000
"""In eight tasks, each of which gives more than the megabyte that it may give at once."""


class Watch(threading.Thread):
    """Reads each file of a task's result below a folder, for as long as it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.seen, self.plain = set[str](), set[str]()
        self.ended = threading.Event()
        self._folder = folder

    def run(self) -> None:
        while not self.ended.is_set():
            for file in self._folder.glob("blockmgr-*/*/taskresult_*"):
                try:
                    content = file.read_bytes()
                except FileNotFoundError:
                    continue
                if content:
                    self.seen.add(file.name)
                if MARK.encode() in content:
                    self.plain.add(file.name)


@pytest.mark.parametrize("aside", [True, False])
def test_no_result_of_a_task_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, aside: bool
) -> None:
    if aside:
        # As Spark has it by default: so the search finds them.
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
        spark_engine.ensure(settings)
        spark = spark_engine.session(settings)
        value = F.concat(F.lit(MARK), F.sha2(F.col("id").cast("string"), 512))
        rows = spark.range(0, ROWS, 1, 8).select(value.alias("value"))
        watch.start()
        for _ in range(3):
            assert rows.toArrow().num_rows == ROWS
        spark.stop()
    finally:
        watch.ended.set()
        spark_engine.stop(settings)
    assert bool(watch.plain) is aside
