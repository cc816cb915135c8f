"""The demo, on fewer days: whole, and again where it ended."""

from pathlib import Path
from uuid import uuid4

import pytest

from commands import call, surround
from tidemark.base.settings import Settings
from tidemark_streaming.cli import demo
from tidemark_streaming.glance import Glance


def test_the_demo_runs_and_a_second_time_goes_on(
    engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "BULK_DAYS", 3)
    monkeypatch.setattr(demo, "STREAM_DAYS", 1)
    database = f"demo_{uuid4().hex[:12]}"
    surround(monkeypatch, engine.model_copy(update={"landing": tmp_path, "database": database}))
    first = call("demo", "--no-serve")
    assert first.exit_code == 0
    assert "streamed 4 arrivals, until January 5, 2013" in first.stderr
    assert "equal" in first.stdout
    assert "Departures by airport" in first.stdout
    assert "What was expected of the windows" in first.stdout
    assert "daily_punctuality" in first.stdout
    for name in ("arrivals.png", "arrivals.html", "late_loss.png", "late_loss.html"):
        assert (engine.home / "pictures" / name).stat().st_size > 10_000
    second = call("demo", "--no-serve")
    assert second.exit_code == 0
    assert "the log of flights is there" in second.stderr
    assert "streamed 4 arrivals, until January 6, 2013" in second.stderr
    assert Glance(Settings()).source("flights").arrivals == 20
