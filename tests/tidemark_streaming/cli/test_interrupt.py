"""Commands end on an interrupt at any moment, but not within a request to the engine."""

import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data.landing import SOURCE, connector, land_some
from helpers.data.support import PER_MINUTE
from helpers.processes.commands import handlers_kept
from helpers.suite.nightly import mostly_nightly
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.cli.interrupt import handle_termination
from tidemark_streaming.cli.processing import stream
from tidemark_streaming.cli.processing.live import Look, View
from tidemark_streaming.ingest.ingest import ingest

COUNTED = replace(PER_MINUTE, source=SOURCE, aggregates={"n": agg.count()})


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Install the command's signal handlers and restore the previous ones afterwards."""
    with handlers_kept():
        handle_termination()
        yield


# Interrupts a command at many moments and waits for each.
@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "asks", mostly_nightly([True, False]), ids=["the engine asked", "the tables read"]
)
def test_an_interrupt_ends_a_followed_stream_outside_of_requests(
    warehouse: Warehouse,
    engine: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asks: bool,
) -> None:
    land_some(tmp_path / "in", 2)
    list(ingest(warehouse, connector(tmp_path / "in")))
    incremental(warehouse, COUNTED)
    settings = engine.model_copy(update={"database": warehouse.database})
    monkeypatch.setattr(stream, "LOOK_EVERY", 0)
    spark, looks = warehouse.spark, 0
    until = 0.0

    def done(look: Look) -> bool:
        nonlocal looks
        looks += 1
        assert look.asset.behind == 0
        assert not asks or spark.range(3).count() == 3
        return time.monotonic() > until

    # The last interrupt comes after a poll even on a slow machine.
    for after in (*(0.002 + 0.0011 * n for n in range(12 if asks else 60)), 3):
        # An interrupt ends the command, so it leaves its view as it is.
        view = View(settings, COUNTED)
        until = time.monotonic() + 8
        signal.setitimer(signal.ITIMER_REAL, after)
        with pytest.raises(KeyboardInterrupt) as interrupt:
            stream.follow_query(view, done)
        frames = traceback.walk_tb(interrupt.value.__traceback__)
        where = [frame.f_globals["__name__"] for frame, _ in frames]
        assert not [name for name in where if name.startswith(("grpc.", "deltalake."))], where
    assert looks
