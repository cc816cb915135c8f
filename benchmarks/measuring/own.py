"""Start an engine for one benchmark, in a temporary home."""

import shutil
import signal
import sys
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
    """Start an engine for the duration of the `with` block, and yield its settings."""
    home = Path(tempfile.mkdtemp(prefix="tidemark_bench_"))
    settings = Settings(home=home, engine_port=free_port(), engine_memory=memory)
    # Otherwise a killed benchmark would leave its engine, which disturbs the next one.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with console.status("starting an engine"):
            engine.ensure_engine(settings)
        yield settings
    finally:
        engine.stop_engine(settings)
        shutil.rmtree(home)
        signal.signal(signal.SIGTERM, before)


def open_warehouse(settings: Settings) -> Warehouse:
    """Open the benchmark's warehouse in a new session, and close the process's last session.

    If the last session stayed open, Spark's client would continue to send requests for it, even to
    a stopped engine.
    """
    last = SparkSession.getActiveSession()
    if last is not None:
        last.stop()
    return Warehouse(engine.connect_session(settings), settings.warehouse, "bench")


def restart(settings: Settings, java_options: str = "") -> Settings:
    """Stop the engine and start it again in the same home, with additional Java options."""
    engine.stop_engine(settings)
    again = Settings(
        home=settings.home,
        engine_port=free_port(),
        engine_memory=settings.engine_memory,
        engine_java_options=f"{settings.engine_java_options} {java_options}".strip(),
    )
    with console.status("starting the engine again"):
        engine.ensure_engine(again)
    return again
