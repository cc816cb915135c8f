"""`tidemark status` and the live page show a silent source, without an engine."""

import json
from pathlib import Path

import pytest

from helpers.data.landing import SOURCE
from helpers.data.tables import arrive, beat
from helpers.processes.commands import call
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark_streaming.monitor import page
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.snapshot.snapshot import Snapshot

SECOND = 1_000_000


def test_a_silent_source_is_shown_until_data_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")
    settings, name = Settings(), SOURCE.name
    kept = Snapshot(settings, [])

    def seen() -> tuple[str | None, int | None]:
        """Return since when the source is silent: as `status` and as the page show it."""
        result = call("status", "--json")
        assert result.exit_code == 0, result.stderr
        (source,) = json.loads(result.stdout)["sources"]
        (on_page,) = page.create_page_data(Monitor(settings).read(), "tidemark", 1)["sources"]
        assert format_instant(kept.read_source(SOURCE).silent_since) == source["silent_since"]
        return source["silent_since"], on_page["silentSince"]

    arrive(settings, name, 0, 2)
    assert seen() == (None, None)
    assert "silent" not in call("status").stdout
    beat(settings, name, 3, watermark=0, silent_since=SECOND)
    beat(settings, name, 4, watermark=0, silent_since=SECOND)
    assert seen() == (format_instant(SECOND), 1000)
    sentence = (
        f"{name} has been silent since {format_instant(SECOND)}; the newest heartbeat is "
        f"of {format_instant(4)}."
    )
    assert sentence in " ".join(call("status").stdout.split())
    arrive(settings, name, 5, 5)
    assert seen() == (None, None)
