"""Tests of the question which streams run, with an engine that fails or does not answer."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from helpers.processes.commands import call, surround
from helpers.processes.failing_engine import FAULTS, FailingEngine, serve
from tidemark.base.errors import EngineError, EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine.server import managed_of
from tidemark_streaming.streams import queries


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[FailingEngine, Settings]]:
    """Yield an engine, and the settings of a home in which it runs."""
    with serve() as (engine, port):
        settings = Settings(home=tmp_path, engine_port=port)
        managed = managed_of(settings)
        managed.start(["sleep", "600"], port, os.environ, tmp_path)
        yield engine, settings
        managed.stop()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_engine_is_reported_as_lost(
    engine: tuple[FailingEngine, Settings], fault: str
) -> None:
    failing, settings = engine
    # The probe before it has two requests.
    answers = iter([True, True])
    failing.fault = lambda engine, context: (
        None if next(answers, False) else FAULTS[fault](engine, context)
    )
    with pytest.raises(EngineLostError):
        queries.find_running(settings, ["some_asset"])


def test_a_slow_engine_may_answer_later(
    engine: tuple[FailingEngine, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, settings = engine
    failing.is_hanging = True
    monkeypatch.setattr(queries, "DEADLINE", 0.2)
    with pytest.raises(EngineError, match=r"which streams run \(DEADLINE_EXCEEDED\)") as raised:
        queries.find_running(settings, ["some_asset"])
    assert raised.value.retriable


def test_an_ingest_that_starts_waits_for_a_slow_engine(
    engine: tuple[FailingEngine, Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, settings = engine
    surround(monkeypatch, settings)
    landing = tmp_path / "landing" / "orders"
    landing.mkdir(parents=True)
    (landing / "a.json").write_text('{"at": "2026-01-01T00:00:00Z"}\n')
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "till")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(queries, "DEADLINE", 0.2)
    failing.is_hanging = True

    def wake_up() -> None:
        while not failing.queries:
            time.sleep(0.01)
        time.sleep(2 * queries.DEADLINE)
        failing.is_hanging = False

    awake = Thread(target=wake_up, daemon=True)
    awake.start()
    # The ingest itself can't use this engine, which has no tables.
    result = call("ingest", "orders", "--follow", "--run", "orders_hourly")
    awake.join()
    said = " ".join(result.stderr.split())
    assert "which streams run (DEADLINE_EXCEEDED)" in said
    assert said.count("Waiting until it is back.") == 1
    assert "The outage ended after" in said
    assert "error: The engine failed" in said
