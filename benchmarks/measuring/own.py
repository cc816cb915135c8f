"""An engine of a benchmark's own, in a home that is gone afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measuring.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse


@contextmanager
def own_engine(memory: str) -> Iterator[Settings]:
    """The settings of an engine that runs for the length of the block."""
    home = Path(tempfile.mkdtemp(prefix="tidemark_bench_"))
    settings = Settings(home=home, engine_port=free_port(), engine_memory=memory)
    try:
        with console.status("starting an engine"):
            engine.ensure(settings)
        yield settings
    finally:
        engine.stop(settings)
        shutil.rmtree(home)


def opened(settings: Settings) -> Warehouse:
    """The benchmark's tables, in a new session, which takes the place of this process's last one.

    Spark's client would go on to ask that one now and then, also on an engine that is gone.
    """
    last = SparkSession.getActiveSession()
    if last is not None:
        last.stop()
    return Warehouse(engine.session(settings), settings.warehouse, "bench")


def restarted(settings: Settings, java_options: str = "") -> Settings:
    """Stop the engine and start it again in the same home, with more Java options."""
    engine.stop(settings)
    again = Settings(
        home=settings.home,
        engine_port=free_port(),
        engine_memory=settings.engine_memory,
        engine_java_options=f"{settings.engine_java_options} {java_options}".strip(),
    )
    with console.status("starting the engine again"):
        engine.ensure(again)
    return again
