"""An engine of a benchmark's own, in a home that is gone afterwards."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tidemark import engine
from tidemark.base.settings import Settings


@contextmanager
def own_engine(console: Console, memory: str) -> Iterator[Settings]:
    """The settings of an engine that runs for the length of the block."""
    home = Path(tempfile.mkdtemp(prefix="tidemark_bench_"))
    settings = Settings(home=home, engine_port=_free_port(), engine_memory=memory)
    try:
        with console.status("starting an engine"):
            engine.ensure(settings)
        yield settings
    finally:
        engine.stop(settings)
        shutil.rmtree(home)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
